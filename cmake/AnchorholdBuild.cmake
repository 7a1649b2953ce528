# How every target of the project is made: language level, warnings, hardening, and the shape of a room.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

option(ANCHORHOLD_SANITIZE "Build with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(ANCHORHOLD_FUZZ "Build the libFuzzer targets (needs clang)" OFF)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(tl-expected REQUIRED)
find_package(nlohmann_json REQUIRED)

add_library(anchorhold_flags INTERFACE)
target_compile_options(anchorhold_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror
  $<$<CXX_COMPILER_ID:GNU>:-Wno-psabi>)
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT ANCHORHOLD_SANITIZE AND NOT ANCHORHOLD_FUZZ)
  target_compile_options(anchorhold_flags INTERFACE -fstack-protector-strong)
  target_compile_definitions(anchorhold_flags INTERFACE _FORTIFY_SOURCE=2)
endif()
# Enough for readable backtraces; full debug information makes gRPC objects four times as large.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
if(ANCHORHOLD_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  add_compile_definitions(ANCHORHOLD_SANITIZED=1)
endif()
if(ANCHORHOLD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  add_compile_definitions(ANCHORHOLD_SANITIZED=1)
endif()

# anchorhold_library(NAME SOURCES … [PUBLIC …] [PRIVATE …])
# One room (or one part of host): its public headers are everything below include/; nothing else is visible to others.
function(anchorhold_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/include/*.h)
  add_library(${name} STATIC ${arg_SOURCES})
  target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_CURRENT_SOURCE_DIR}/include FILES ${headers})
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE anchorhold_flags ${arg_PRIVATE})
endfunction()

# anchorhold_program(NAME SOURCES … LINKS …): an executable of the product, in <build>/bin.
function(anchorhold_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE anchorhold_flags ${arg_LINKS})
  target_link_options(${name} PRIVATE -Wl,-z,relro,-z,now)
  set_property(GLOBAL APPEND PROPERTY ANCHORHOLD_PROGRAMS ${name})
endfunction()

# anchorhold_sealed_program(NAME SOURCES … LINKS …): one that seals itself (base/seal.h).
function(anchorhold_sealed_program name)
  anchorhold_program(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE anchorhold_sealed_program)
endfunction()

# What GoogleTest ends with when something was skipped and nothing failed: after failures they are its last words.
set(ANCHORHOLD_SKIPPED "\\[  SKIPPED \\] [ -~]*[^ -~]*$")

# anchorhold_test(NAME SOURCES … LINKS … [LABELS …] [TIMEOUT seconds] [PROGRAMS target…])
# A GoogleTest program, registered as one test per TEST() with the given labels; PROGRAMS are built with it.
function(anchorhold_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINKS;LABELS;PROGRAMS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE anchorhold_flags GTest::gmock GTest::gtest_main ${arg_LINKS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(arg_PROGRAMS)
    add_dependencies(${name} ${arg_PROGRAMS})
  endif()
  target_compile_definitions(${name} PRIVATE ANCHORHOLD_PROGRAM_DIR="${CMAKE_BINARY_DIR}/bin"
    ANCHORHOLD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if("unit" IN_LIST arg_LABELS)
    set_property(GLOBAL APPEND PROPERTY ANCHORHOLD_UNIT_TESTS ${name})
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" SKIP_REGULAR_EXPRESSION "${ANCHORHOLD_SKIPPED}")
endfunction()

# anchorhold_fuzz(NAME SOURCES … LINKS …): a libFuzzer target with its corpus in tests/fuzz/corpus/NAME.
# Under the fuzz preset it is fuzzed; under the others it is a test that replays its corpus.
function(anchorhold_fuzz name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  if(ANCHORHOLD_FUZZ)
    add_executable(fuzz_${name} ${arg_SOURCES})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    set_property(GLOBAL APPEND PROPERTY ANCHORHOLD_FUZZERS ${name})
  else()
    add_executable(fuzz_${name} ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp)
    set_property(GLOBAL APPEND PROPERTY ANCHORHOLD_UNIT_TESTS fuzz_${name})
    add_test(NAME fuzz.${name}.corpus COMMAND fuzz_${name} ${corpus})
    set_tests_properties(fuzz.${name}.corpus PROPERTIES LABELS unit TIMEOUT 120)
  endif()
  target_link_libraries(fuzz_${name} PRIVATE anchorhold_flags ${arg_LINKS})
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()
