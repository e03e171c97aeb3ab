# Configures, builds and tests the project NAME.
include(${CMAKE_CURRENT_LIST_DIR}/step.cmake)

set(tree ${WORK}-${NAME})
file(REMOVE_RECURSE ${tree})
step(${CMAKE_COMMAND} -S ${SOURCE}/${NAME} -B ${tree} -G Ninja -C ${HOW}
  -D CMAKE_PREFIX_PATH=${WORK}/moved -D PROJECT=${PROJECT} -D OCTAVO_WERROR=${OCTAVO_WERROR})
step(${CMAKE_COMMAND} --build ${tree})
step(${CMAKE_CTEST_COMMAND} --test-dir ${tree} --output-on-failure --no-tests=error)
