# The layout of drawings: defines Graphviz::Graphviz. Debian's package is libgraphviz-dev.
find_path(Graphviz_INCLUDE_DIR graphviz/gvc.h)
find_library(Graphviz_cgraph_LIBRARY cgraph)
find_library(Graphviz_gvc_LIBRARY gvc)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Graphviz
  REQUIRED_VARS Graphviz_gvc_LIBRARY Graphviz_cgraph_LIBRARY Graphviz_INCLUDE_DIR)
if(Graphviz_FOUND AND NOT TARGET Graphviz::Graphviz)
  add_library(Graphviz::Graphviz INTERFACE IMPORTED)
  # Its headers include each other by their bare names, and are not ours to warn about.
  set_target_properties(Graphviz::Graphviz PROPERTIES
    INTERFACE_LINK_LIBRARIES "${Graphviz_gvc_LIBRARY};${Graphviz_cgraph_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Graphviz_INCLUDE_DIR};${Graphviz_INCLUDE_DIR}/graphviz")
endif()
mark_as_advanced(Graphviz_INCLUDE_DIR Graphviz_cgraph_LIBRARY Graphviz_gvc_LIBRARY)
