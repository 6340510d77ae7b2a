# Writes OUTPUT, a C++ file with the function FUNCTION of HEADER that returns the page PAGE, its STYLE and SCRIPTS
# (separated by commas) put in, as string literals (in pieces: compilers limit one); and, where CHART_JS is given,
# chart_js() that returns that.
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
file(READ ${PAGE} page)
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
