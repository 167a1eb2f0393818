#!/bin/sh
# tools/install.sh BUILD - copies headers and libraries below $DESTDIR$PREFIX, with a file for
# pkg-config and a package for CMake (target tc::tc, shared; tc::static). Called by make install, which
# sets PREFIX, DESTDIR, DEFINES, VERSION and SONAME.
set -eu

build=$1
to=$DESTDIR$PREFIX
mkdir -p "$to/include" "$to/lib/pkgconfig" "$to/lib/cmake/tc"
install -m 644 tc.h tc_cpu.h tc_cuda.h tc_onnx.h tc_comm.h tc_engines.h "$to/include"
install -m 644 "$build/libtc.a" "$to/lib"
install -m 755 "$build/libtc.so" "$to/lib/libtc.so.$VERSION"
ln -sf "libtc.so.$VERSION" "$to/lib/$SONAME"
ln -sf "$SONAME" "$to/lib/libtc.so"

cat >"$to/lib/pkgconfig/tc.pc" <<TXT
prefix=$PREFIX
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: tc
Description: tensor compiler for C
Version: $VERSION
Cflags: -I\${includedir} $DEFINES
Libs: -L\${libdir} -ltc
Libs.private: -lm -ldl -lpthread
TXT

cat >"$to/lib/cmake/tc/tcConfig.cmake" <<TXT
# find_package(tc) gives tc::tc (shared) and tc::static.
get_filename_component(tc_root "\${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(tc_defines "$DEFINES")
separate_arguments(tc_defines)
add_library(tc::tc SHARED IMPORTED)
set_target_properties(tc::tc PROPERTIES IMPORTED_LOCATION "\${tc_root}/lib/libtc.so.$VERSION"
    IMPORTED_SONAME "$SONAME" INTERFACE_INCLUDE_DIRECTORIES "\${tc_root}/include"
    INTERFACE_COMPILE_OPTIONS "\${tc_defines}")
add_library(tc::static STATIC IMPORTED)
set_target_properties(tc::static PROPERTIES IMPORTED_LOCATION "\${tc_root}/lib/libtc.a"
    INTERFACE_INCLUDE_DIRECTORIES "\${tc_root}/include" INTERFACE_COMPILE_OPTIONS "\${tc_defines}"
    INTERFACE_LINK_LIBRARIES "m;dl;pthread")
TXT
cat >"$to/lib/cmake/tc/tcConfigVersion.cmake" <<TXT
set(PACKAGE_VERSION "$VERSION")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
TXT
echo "installed tc $VERSION below $to"
