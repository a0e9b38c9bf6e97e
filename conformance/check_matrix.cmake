# cmake -DPROGRAM= -DPLUGIN= -DPAGE= -P check_matrix.cmake: fails unless the page is what the program prints.
execute_process(COMMAND ${PROGRAM} --plugin ${PLUGIN} --matrix
  RESULT_VARIABLE code OUTPUT_VARIABLE found ERROR_VARIABLE errors)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} failed (${code}): ${errors}")
endif()
file(READ ${PAGE} page)
if(NOT page STREQUAL found)
  message(FATAL_ERROR "${PAGE} is not what --matrix prints; write it anew:\n${found}")
endif()
