# rullama_page(VARIABLE [HEAD text] [MODEL text] [SETTINGS text] [BEGINNING text] [SCRIPT text])
#
# Sets VARIABLE to the page of page.html with these texts in their places: in the head, next to the name, after the
# common settings, before the conversation, at the end. PAGE_STYLE has the style of all pages and PAGE_SCRIPTS the
# scripts that come before a page's own.
set(page_folder ${CMAKE_CURRENT_LIST_DIR})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_folder}/page.html ${page_folder}/page.css)
file(READ ${page_folder}/page.css PAGE_STYLE)
set(PAGE_SCRIPTS)
foreach(name markdown conversation pictures)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_folder}/${name}.js)
  file(READ ${page_folder}/${name}.js text)
  string(APPEND PAGE_SCRIPTS "${text}\n")
endforeach()

function(rullama_page variable)
  cmake_parse_arguments(PARSE_ARGV 1 PAGE "" "HEAD;MODEL;SETTINGS;BEGINNING;SCRIPT" "")
  file(READ ${page_folder}/page.html page)
  string(CONFIGURE "${page}" page @ONLY)
  set(${variable} "${page}" PARENT_SCOPE)
endfunction()
