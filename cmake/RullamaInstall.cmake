# rullama_install_documents()
# Installs the parts of the package other than programs, plugins and the SDK:
#   share/doc/rullama          README.md, LICENSE and docs/, with the links between them intact
#   share/rullama/configs      the ready-made configurations
#   share/rullama/models       the tiny models, for the guide and to try everything without a download
function(rullama_install_documents)
  install(FILES README.md LICENSE CONTRIBUTING.md SECURITY.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc
    FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
  file(GLOB models CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/data/tiny-*.gguf)
  install(FILES ${models} DESTINATION ${CMAKE_INSTALL_DATADIR}/rullama/models COMPONENT data)
  # In the source tree the tiny models are test data; once installed they are where the others go.
  file(GLOB configs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/configs/*.yaml)
  foreach(config IN LISTS configs)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${config})
    get_filename_component(name ${config} NAME)
    file(READ ${config} text)
    string(REPLACE "../tests/data/" "../models/" text "${text}")
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/package/configs/${name} CONTENT "${text}" @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/package/configs/${name}
      DESTINATION ${CMAKE_INSTALL_DATADIR}/rullama/configs COMPONENT data)
  endforeach()
endfunction()
