# Cross-compiles for 64-bit Arm with Debian's cross compiler and its multi-arch arm64 packages.
# The emulator takes the CPU model from the environment variable QEMU_CPU.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
