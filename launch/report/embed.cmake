# Writes OUTPUT, a C++ file with the function FUNCTION of HEADER that returns a page as string literals (in pieces:
# compilers limit one); and, where CHART_JS is given, chart_js() that returns that. The page is page/frame.html with
# PAGE, whose first line is its title and whose others stand in <main>, its STYLE and SCRIPTS (separated by commas) put
# in.
cmake_minimum_required(VERSION 3.25)
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
# A function that returns a literal.
function(returns name literal out)
  set(${out} "
std::string_view ${name}() {
  static constexpr std::string_view kText =
${literal};
  return kText;
}
" PARENT_SCOPE)
endfunction()
file(READ ${CMAKE_CURRENT_LIST_DIR}/page/frame.html page)
file(READ ${PAGE} main)
string(FIND "${main}" "\n" line_end)
string(SUBSTRING "${main}" 0 ${line_end} title)
math(EXPR line_end "${line_end} + 1")
string(SUBSTRING "${main}" ${line_end} -1 main)
string(REPLACE "@TITLE@" "${title}" page "${page}")
string(REPLACE "@MAIN@\n" "${main}" page "${page}")
file(READ ${STYLE} style)
set(script "")
string(REPLACE "," ";" scripts "${SCRIPTS}")
foreach(part ${scripts})
  file(READ ${part} text)
  string(APPEND script "${text}")
endforeach()
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
literal("${page}" page_literal)
returns(${FUNCTION} "${page_literal}" functions)
if(CHART_JS)
  file(READ ${CHART_JS} chart)
  # A comment that names a source map would make browsers look for it.
  string(REGEX REPLACE "//# sourceMappingURL=[^\n]*" "" chart "${chart}")
  literal("${chart}" chart_literal)
  returns(chart_js "${chart_literal}" chart_function)
  string(APPEND functions "${chart_function}")
endif()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace tpsim::launch {
${functions}
}  // namespace tpsim::launch
")
