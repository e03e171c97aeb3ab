# cmake -DPTX=<file> -DNAME=<stem> -DOUT=<file.cpp> -P embed_ptx.cmake
#
# The text as a constant, ended by a zero as the driver wants it. Without PTX: an empty one.

set(text "")
if(PTX)
  file(READ ${PTX} text)
endif()
# (CMake takes no part in what stands between the brackets.)
file(WRITE ${OUT}
  "#include \"cuda/ptx.hpp\"\n\n"
  "namespace octavo::cuda {\n"
  "extern const Ptx ${NAME}_ptx{\"${NAME}\", R\"ptx(${text})ptx\"};\n"
  "}  // namespace octavo::cuda\n")
