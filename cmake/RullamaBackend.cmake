# rullama_add_backend(NAME SOURCES a.cc ... [DEPS x ...] [NO_INSTALL])
#
# A plugin librullama_backend_NAME.so (target rullama_backend_NAME) that uses RULLAMA_EXPORT_BACKEND in
# one of its sources. It exports its entry point and nothing else, resolves nothing from the host, and
# lies in ${CMAKE_BINARY_DIR}/lib/rullama, later in rullama/ of the folder of libraries (component
# plugin-NAME). Its libraries are looked for next to it. If the build has tests, one checks the list
# of exported symbols.
# A backend that RULLAMA_BUILTIN_BACKENDS names is a static library instead, whose entry point is
# rullama_query_NAME (core/sdk/export.h).
# Also part of the installed package: find_package(rullama) gives plugin authors the same functions.
set(RULLAMA_BACKEND_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR})

function(rullama_add_backend name)
  cmake_parse_arguments(ARG "NO_INSTALL" "" "SOURCES;DEPS" ${ARGN})
  set(target rullama_backend_${name})
  set(map ${RULLAMA_BACKEND_CMAKE_DIR}/plugin.map)
  set(kind MODULE)
  if(name IN_LIST RULLAMA_BUILTIN_BACKENDS)
    set(kind STATIC)
  endif()
  add_library(${target} ${kind} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE rullama::sdk ${ARG_DEPS})
  if(TARGET rullama_flags)
    target_link_libraries(${target} PRIVATE rullama_flags)
  endif()
  if(kind STREQUAL STATIC)
    target_compile_definitions(${target} PRIVATE RULLAMA_QUERY_NAME=rullama_query_${name})
    return()
  endif()
  set_target_properties(${target} PROPERTIES
    PREFIX lib
    SUFFIX .so
    CXX_VISIBILITY_PRESET hidden
    C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/rullama
    BUILD_RPATH "$ORIGIN"
    INSTALL_RPATH "$ORIGIN"
    LINK_DEPENDS ${map})
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  if(NOT RULLAMA_SANITIZE)
    # Sanitizer runtimes live in the program, so under them a plugin has undefined symbols.
    target_link_options(${target} PRIVATE -Wl,-z,defs)
    if(CMAKE_NM AND (RULLAMA_TESTS OR BUILD_TESTING))
      add_test(NAME plugin_exports_${name}
        COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DPLUGIN=$<TARGET_FILE:${target}>
                -P ${RULLAMA_BACKEND_CMAKE_DIR}/CheckPluginExports.cmake)
      set_tests_properties(plugin_exports_${name} PROPERTIES LABELS plugin)
    endif()
  endif()
  if(NOT ARG_NO_INSTALL)
    set(libraries lib)
    if(CMAKE_INSTALL_LIBDIR)
      set(libraries ${CMAKE_INSTALL_LIBDIR})
    endif()
    install(TARGETS ${target}
      LIBRARY DESTINATION ${libraries}/rullama COMPONENT plugin-${name} OPTIONAL)
  endif()
endfunction()

# rullama_add_conformance_test(NAME [MANIFEST FILE] [ARGS x ...])
#
# A test conformance_NAME that runs rullama-conformance on the plugin of rullama_add_backend(NAME ...):
# every op it claims against the float64 reference. The program is the one of this build, else the
# one installed with the package. Nothing in a build without tests.
function(rullama_add_conformance_test name)
  cmake_parse_arguments(ARG "" "MANIFEST" "ARGS" ${ARGN})
  if(NOT RULLAMA_TESTS AND NOT BUILD_TESTING)
    return()
  endif()
  if(TARGET rullama-conformance)
    set(program $<TARGET_FILE:rullama-conformance>)
  else()
    find_program(RULLAMA_CONFORMANCE rullama-conformance REQUIRED
      HINTS ${RULLAMA_BACKEND_CMAKE_DIR}/../../../bin ${RULLAMA_BACKEND_CMAKE_DIR}/../../../../bin)
    set(program ${RULLAMA_CONFORMANCE})
  endif()
  set(arguments --plugin $<TARGET_FILE:rullama_backend_${name}> ${ARG_ARGS})
  if(ARG_MANIFEST)
    list(APPEND arguments --manifest ${ARG_MANIFEST})
  endif()
  add_test(NAME conformance_${name} COMMAND ${program} ${arguments})
  set_tests_properties(conformance_${name} PROPERTIES LABELS conformance TIMEOUT 600)
endfunction()
