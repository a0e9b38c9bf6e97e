# rullama_embed(TARGET VARIABLE FILES...)
#
# Gives TARGET a header VARIABLE.h with `inline constexpr EmbeddedFile VARIABLE[]`: name (without
# folder and without a final .in) and text of each file. A changed file runs CMake again.
function(rullama_embed target variable)
  set(rows)
  foreach(file IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "\\.in$" "" name ${name})
    file(READ ${file} text)
    string(APPEND rows "    {\"${name}\", R\"rl_file(${text})rl_file\"},\n")
  endforeach()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/embedded)
  set(header
"// Written by cmake/RullamaEmbed.cmake.
#pragma once

#include <string_view>

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name is CMake's
inline constexpr EmbeddedFile ${variable}[] = {
${rows}};
")
  # file(CONFIGURE) would replace the @NAMES@ of templates. The file is written only if its content
  # changed.
  set(old)
  if(EXISTS ${folder}/${variable}.h)
    file(READ ${folder}/${variable}.h old)
  endif()
  if(NOT old STREQUAL header)
    file(WRITE ${folder}/${variable}.h "${header}")
  endif()
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
