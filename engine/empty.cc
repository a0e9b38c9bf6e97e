// librullama is made of the objects of rullama_engine; CMake wants a source of its own.
