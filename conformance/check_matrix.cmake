# cmake -DPROGRAM= -DPLUGIN= -DPAGE= -P check_matrix.cmake: fails unless the page has the section that the program prints.
execute_process(COMMAND ${PROGRAM} --plugin ${PLUGIN} --matrix
  RESULT_VARIABLE code OUTPUT_VARIABLE found ERROR_VARIABLE errors)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} failed (${code}): ${errors}")
endif()
file(READ ${PAGE} page)
string(FIND "${page}\n## " "${found}\n## " at)
if(at EQUAL -1)
  message(FATAL_ERROR "${PAGE} has another section than --matrix prints; replace it by:\n${found}")
endif()
