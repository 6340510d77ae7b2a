# Writes OUTPUT, a C++ file that holds the page of PAGE_DIR, its style and scripts put in, and CHART_JS as string
# literals (in pieces: compilers limit one).
function(literal text out)
  string(LENGTH "${text}" length)
  set(position 0)
  set(result "")
  while(position LESS length)
    string(SUBSTRING "${text}" ${position} 12000 piece)
    string(APPEND result "R\"tpsim(${piece})tpsim\"\n")
    math(EXPR position "${position} + 12000")
  endwhile()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()
file(READ ${PAGE_DIR}/page.html page)
file(READ ${PAGE_DIR}/style.css style)
set(script "")
foreach(part base answer bars charts steps sweep tables)
  file(READ ${PAGE_DIR}/${part}.js text)
  string(APPEND script "${text}")
endforeach()
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(READ ${CHART_JS} chart)
# A comment that names a source map would make browsers look for it.
string(REGEX REPLACE "//# sourceMappingURL=[^\n]*" "" chart "${chart}")
literal("${page}" page_literal)
literal("${chart}" chart_literal)
file(WRITE ${OUTPUT} "#include \"launch/report/page_text.h\"

namespace tpsim::launch {

std::string_view page_template() {
  static constexpr std::string_view kText =
${page_literal};
  return kText;
}

std::string_view chart_js() {
  static constexpr std::string_view kText =
${chart_literal};
  return kText;
}

}  // namespace tpsim::launch
")
