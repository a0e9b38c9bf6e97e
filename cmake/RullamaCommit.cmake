# rullama_commit_header(TARGET)
#
# Gives TARGET a header build_commit.h with kBuildCommit: what `git describe` says of the source tree,
# or an empty text where there is no git checkout. Each commit runs CMake again.
function(rullama_commit_header target)
  set(commit)
  find_program(RULLAMA_GIT git)
  if(RULLAMA_GIT AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
    execute_process(COMMAND ${RULLAMA_GIT} describe --always --tags --abbrev=9
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${RULLAMA_GIT} rev-parse --git-path logs/HEAD
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
      OUTPUT_VARIABLE log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    get_filename_component(log "${log}" ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
    if(EXISTS "${log}" AND NOT IS_DIRECTORY "${log}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${log})
    endif()
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/commit)
  file(CONFIGURE OUTPUT ${folder}/build_commit.h CONTENT
"// Written by cmake/RullamaCommit.cmake.
#pragma once

namespace rullama {
inline constexpr char kBuildCommit[] = \"${commit}\";
}  // namespace rullama
")
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
