# rullama_packages()
#
# Configures cpack to make Debian packages of this build, if RULLAMA_PACKAGES is on (preset `deb`):
#   rullama                  the program with its manual, completions, configurations and tiny models
#   librullama0              the shared library and the cpu backend
#   librullama-dev           headers and CMake files for programs and for backends, rullama-conformance
#   rullama-backend-NAME     a backend for GPUs, for each of rullama_gpu_backends()
# docs/packages.md describes them; tests/packages/in_chroot.sh builds and tries them.
option(RULLAMA_PACKAGES "Configure cpack for Debian packages (preset deb)" OFF)

# Sets `result` to the maintainer of the packages, "Name <address>". It has no default in the sources:
# whoever builds packages answers for them.
function(rullama_package_maintainer result)
  set(RULLAMA_PACKAGE_MAINTAINER "" CACHE STRING
    "Maintainer of the packages: Name <address>; without one, $DEBFULLNAME <$DEBEMAIL>")
  set(maintainer "${RULLAMA_PACKAGE_MAINTAINER}")
  if(maintainer STREQUAL "")
    set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
  endif()
  if(NOT maintainer MATCHES "^[^<>]+ <[^<>@ ]+@[^<>@ ]+>$")
    message(FATAL_ERROR
      "the maintainer of the packages is '${maintainer}', expected \"Name <address>\"; set DEBFULLNAME "
      "and DEBEMAIL, or -DRULLAMA_PACKAGE_MAINTAINER")
  endif()
  set(${result} "${maintainer}" PARENT_SCOPE)
endfunction()

# Installs the licence and the two changelogs where Debian expects those of `package`.
function(rullama_package_documents component package)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/debian/copyright ${CMAKE_BINARY_DIR}/package/changelog.gz
    ${CMAKE_BINARY_DIR}/package/changelog.Debian.gz
    DESTINATION share/doc/${package} COMPONENT ${component})
  set(overrides ${PROJECT_SOURCE_DIR}/cmake/debian/${package}.lintian-overrides)
  if(EXISTS ${overrides})
    install(FILES ${overrides} RENAME ${package} DESTINATION share/lintian/overrides
      COMPONENT ${component})
  endif()
endfunction()

# Writes changelog.gz, which is CHANGELOG.md, and changelog.Debian.gz, which names the last release.
function(rullama_package_changelogs maintainer)
  set(folder ${CMAKE_BINARY_DIR}/package)
  set(changes ${PROJECT_SOURCE_DIR}/CHANGELOG.md)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${changes})
  find_program(RULLAMA_GZIP gzip REQUIRED)
  find_program(RULLAMA_DATE date REQUIRED)
  file(STRINGS ${changes} release REGEX "^## [0-9.]+ - [0-9-]+$" LIMIT_COUNT 1)
  string(REGEX REPLACE ".* - " "" day "${release}")
  execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C ${RULLAMA_DATE} -u -R -d "${day}"
    OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${folder}/changelog.Debian
"rullama (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * changelog.gz lists the changes.

 -- ${maintainer}  ${date}
")
  foreach(pair "${changes}|changelog.gz" "${folder}/changelog.Debian|changelog.Debian.gz")
    string(REPLACE "|" ";" pair "${pair}")
    list(GET pair 0 from)
    list(GET pair 1 to)
    execute_process(COMMAND ${RULLAMA_GZIP} -9nc ${from} OUTPUT_FILE ${folder}/${to}
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endfunction()

# Sets the variables of cpack for one package, which is a component group, in the caller's scope.
macro(rullama_package group name section description)
  string(TOUPPER ${group} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${description}")
endmacro()

function(rullama_packages)
  if(NOT RULLAMA_PACKAGES)
    return()
  endif()
  if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    message(FATAL_ERROR "CMAKE_INSTALL_PREFIX is '${CMAKE_INSTALL_PREFIX}', expected /usr for "
      "packages, so that libraries go to the folder of the architecture; use the preset deb")
  endif()
  rullama_package_maintainer(CPACK_PACKAGE_CONTACT)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME rullama)
  set(CPACK_PACKAGE_VENDOR "The rullama authors")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Gemma 3 and 4 language models on plugin backends")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  set(CPACK_COMPONENTS_ALL program doc data library plugin-cpu development sdk)
  rullama_gpu_backends(gpu_backends)
  rullama_card_backends(cards)
  list(APPEND gpu_backends ${cards})

  get_target_property(soversion rullama_shared SOVERSION)
  set(library librullama${soversion})
  rullama_package(rullama rullama utils
"This package has the program, which answers prompts and holds conversations
with models in GGUF files or in the store of Ollama.")
  rullama_package(library ${library} libs
"This package has the shared library, with which programs answer prompts, and
the backend that computes on the processor.")
  rullama_package(development librullama-dev libdevel
"This package has the headers and CMake files for programs that use librullama,
and for backends.")
  set(needs_library "${library} (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
  set(CPACK_DEBIAN_RULLAMA_PACKAGE_DEPENDS "${needs_library}")
  # `rullama pull` asks servers for certificates that it trusts.
  set(CPACK_DEBIAN_RULLAMA_PACKAGE_RECOMMENDS ca-certificates)
  # The headers include <tl/expected.hpp>.
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${needs_library}, libexpected-dev")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS rullama)
  set(suggested)
  foreach(name IN LISTS gpu_backends)
    get_property(api GLOBAL PROPERTY RULLAMA_GPU_API_${name})
    rullama_package(${name} rullama-backend-${name} libs
"This package has the backend that computes on GPUs through ${api}.")
    # The drivers' loaders are opened at run time, where dpkg-shlibdeps does not see them.
    get_property(loader GLOBAL PROPERTY RULLAMA_GPU_LOADER_${name})
    set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${needs_library}, ${loader}")
    list(APPEND CPACK_COMPONENTS_ALL plugin-${name})
    list(APPEND suggested rullama-backend-${name})
  endforeach()
  list(JOIN suggested ", " CPACK_DEBIAN_RULLAMA_PACKAGE_SUGGESTS)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
    ${CMAKE_BINARY_DIR}/package/triggers ${CMAKE_BINARY_DIR}/package/shlibs)
  file(WRITE ${CMAKE_BINARY_DIR}/package/shlibs
    "librullama ${soversion} ${library} (>= ${PROJECT_VERSION})\n")
  file(WRITE ${CMAKE_BINARY_DIR}/package/triggers "activate-noawait ldconfig\n")

  rullama_package_changelogs("${CPACK_PACKAGE_CONTACT}")
  rullama_package_documents(program rullama)
  rullama_package_documents(library ${library})
  rullama_package_documents(development librullama-dev)
  foreach(name IN LISTS gpu_backends)
    rullama_package_documents(plugin-${name} rullama-backend-${name})
  endforeach()
  include(CPack)
  foreach(component program doc data)
    cpack_add_component(${component} GROUP rullama)
  endforeach()
  foreach(component library plugin-cpu)
    cpack_add_component(${component} GROUP library)
  endforeach()
  foreach(component development sdk)
    cpack_add_component(${component} GROUP development)
  endforeach()
  foreach(name IN LISTS gpu_backends)
    cpack_add_component(plugin-${name} GROUP ${name})
  endforeach()
endfunction()
