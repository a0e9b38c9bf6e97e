# rullama_manual(TARGET)
#
# Has the program write its manual pages whenever it was linked, to ${CMAKE_BINARY_DIR}/man/man1, and
# installs them and the completions for bash, zsh and fish where the shells look. A cross build whose
# programs do not run here has no pages.
#
# As a script (-P) with PROGRAM, FOLDER and CHANGES it writes the pages.
if(CMAKE_SCRIPT_MODE_FILE)
  file(STRINGS ${CHANGES} release REGEX "^## [0-9.]+ - [0-9-]+$" LIMIT_COUNT 1)
  string(REGEX REPLACE ".* - " "" date "${release}")
  execute_process(COMMAND ${PROGRAM} __manual OUTPUT_VARIABLE names COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" names "${names}")
  file(REMOVE_RECURSE ${FOLDER})
  file(MAKE_DIRECTORY ${FOLDER})
  foreach(name IN LISTS names)
    execute_process(COMMAND ${PROGRAM} __manual ${name} ${date} OUTPUT_FILE ${FOLDER}/${name}.1
      COMMAND_ERROR_IS_FATAL ANY)
    if(GZIP)
      execute_process(COMMAND ${GZIP} -9n ${FOLDER}/${name}.1 COMMAND_ERROR_IS_FATAL ANY)
    endif()
  endforeach()
  return()
endif()

function(rullama_manual target)
  set(folder ${CMAKE_BINARY_DIR}/man/man1)
  set(zsh_folder zsh/site-functions)
  set(fish_folder fish/vendor_completions.d)
  set(compress)
  if(RULLAMA_PACKAGES)
    # Debian wants pages compressed and has a folder of its own for the completions of packages.
    find_program(RULLAMA_GZIP gzip REQUIRED)
    set(compress -DGZIP=${RULLAMA_GZIP})
    set(zsh_folder zsh/vendor-completions)
  endif()
  if(NOT CMAKE_CROSSCOMPILING)
    add_custom_command(TARGET ${target} POST_BUILD VERBATIM
      COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${target}> -DFOLDER=${folder} ${compress}
              -DCHANGES=${PROJECT_SOURCE_DIR}/CHANGELOG.md
              -P ${PROJECT_SOURCE_DIR}/cmake/RullamaManual.cmake)
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
  endif()
  set(completion ${CMAKE_CURRENT_SOURCE_DIR}/completion)
  install(FILES ${completion}/rullama.bash RENAME rullama
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
  install(FILES ${completion}/_rullama
    DESTINATION ${CMAKE_INSTALL_DATADIR}/${zsh_folder} COMPONENT program)
  install(FILES ${completion}/rullama.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/${fish_folder} COMPONENT program)
endfunction()
