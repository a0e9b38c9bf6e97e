# cmake -DFOLDER=folder -DFILES=names -DSOURCE=file -DOUTPUT=file -P ServiceWorker.cmake
#
# Writes SOURCE with the names of the page's FILES in FOLDER, and with a digest that changes with each of them.
set(digests)
foreach(name IN LISTS FILES)
  file(SHA256 ${FOLDER}/${name} digest)
  string(APPEND digests ${digest})
endforeach()
string(SHA256 PAGE_DIGEST "${digests}")
list(JOIN FILES "', '" PAGE_FILES)
set(PAGE_FILES "'${PAGE_FILES}'")
configure_file(${SOURCE} ${OUTPUT} @ONLY)
file(TOUCH ${OUTPUT})
