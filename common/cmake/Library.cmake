# millrace_library(name LAYER n HEADERS ... SOURCES ... DEPS ... THIRD_PARTY ...)
#   A static library millrace_<name> (alias millrace::<name>) of one layer of docs/architecture.md. Configuring fails when
#   it names a library of a higher layer, or a third party that its layer may not use.
# millrace_extensions(library HEADER h TYPE T NAMESPACE ns ENTRIES a b ...)
#   One table of descriptors generated from the folder's own list: each a.cc defines `const T ns::a::kDescriptor`, and
#   `ns::All()` returns them in list order. Each a.cc is compiled with the declarations of all of them in front: a const
#   that nothing declared before would be the file's own.
# millrace_service(name SOURCES ... DEPS ...)      an executable of layer 5
# millrace_test(name SOURCES ... DEPS ... LABELS ... TIMEOUT s)   one gtest binary, one ctest entry
#   Labels it gets by itself: `asan` (unit, conformance and component tests), and of those `tsan` where no library that
#   the thread sanitizer cannot see into is linked. Targets tests_asan and tests_tsan build them.
# millrace_benchmark(name SOURCES ... DEPS ...)    a Google Benchmark program, built but not run by ctest
define_property(TARGET PROPERTY MR_LAYER)
set(MR_DEPS_FILE ${PROJECT_BINARY_DIR}/millrace_deps.txt)
file(WRITE ${MR_DEPS_FILE} "")

# Third parties whose own threads are not instrumented.
set(MR_TSAN_BLIND "^millrace::dep_(grpc|ucx|rocksdb)$")

# Sets `out` to whether `library` links, itself or through others, a third party that matches `pattern`.
function(millrace_reaches out library pattern)
  get_target_property(third millrace_${library} MR_THIRD)
  foreach(name IN LISTS third)
    if(name MATCHES "${pattern}")
      set(${out} ON PARENT_SCOPE)
      return()
    endif()
  endforeach()
  get_target_property(deps millrace_${library} MR_DEPS)
  foreach(dep IN LISTS deps)
    millrace_reaches(reached ${dep} "${pattern}")
    if(reached)
      set(${out} ON PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${out} OFF PARENT_SCOPE)
endfunction()

# Pure computation that any layer may link, PRIVATE: Abseil and libcrypto (SHA-256); PCRE2 is for text in layer 1.
set(MR_PURE_THIRD_PARTY "^(absl::.*|millrace::dep_crypto|millrace::dep_pcre2)$")

function(millrace_library name)
  cmake_parse_arguments(A "" "LAYER" "HEADERS;SOURCES;DEPS;THIRD_PARTY" ${ARGN})
  if(A_UNPARSED_ARGUMENTS OR NOT DEFINED A_LAYER)
    message(FATAL_ERROR "millrace_library(${name}): LAYER is missing or unknown words '${A_UNPARSED_ARGUMENTS}'")
  endif()
  add_library(millrace_${name} STATIC ${A_SOURCES})
  add_library(millrace::${name} ALIAS millrace_${name})
  target_sources(millrace_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${A_HEADERS})
  set_target_properties(millrace_${name} PROPERTIES MR_LAYER ${A_LAYER} VERIFY_INTERFACE_HEADER_SETS ON LINKER_LANGUAGE CXX
    MR_DEPS "${A_DEPS}" MR_THIRD "${A_THIRD_PARTY}")
  foreach(dep IN LISTS A_DEPS)
    if(NOT TARGET millrace_${dep})
      message(FATAL_ERROR "millrace_${name} (layer ${A_LAYER}) may not depend on millrace_${dep}, which is not defined "
        "before it: libraries are defined from the bottom layer up, so '${dep}' is misspelt or of a higher layer")
    endif()
    get_target_property(dep_layer millrace_${dep} MR_LAYER)
    if(dep_layer GREATER A_LAYER)
      message(FATAL_ERROR "millrace_${name} (layer ${A_LAYER}) may not depend on millrace_${dep} (layer ${dep_layer})")
    endif()
    if(A_LAYER EQUAL 4 AND dep_layer EQUAL 3)
      message(FATAL_ERROR "millrace_${name} is a runtime and may not depend on the adapter millrace_${dep}")
    endif()
    target_link_libraries(millrace_${name} PUBLIC millrace::${dep})
  endforeach()
  foreach(third IN LISTS A_THIRD_PARTY)
    if(NOT third MATCHES "${MR_PURE_THIRD_PARTY}" AND NOT A_LAYER EQUAL 3 AND NOT A_LAYER EQUAL 5)
      message(FATAL_ERROR "millrace_${name}: only adapters (layer 3) and services (layer 5) may use ${third}")
    endif()
    target_link_libraries(millrace_${name} PRIVATE ${third})
  endforeach()
  file(APPEND ${MR_DEPS_FILE} "${name} ${A_LAYER} ${CMAKE_CURRENT_SOURCE_DIR} deps=${A_DEPS} third=${A_THIRD_PARTY}\n")
  add_executable(millrace_${name}_linktest EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/common/cmake/empty_main.cc)
  target_link_libraries(millrace_${name}_linktest PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,millrace_${name}>")
  set_target_properties(millrace_${name}_linktest PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/linktests)
  set_property(GLOBAL APPEND PROPERTY MR_LINKTESTS millrace_${name}_linktest)
endfunction()

function(millrace_extensions library)
  cmake_parse_arguments(A "" "HEADER;TYPE;NAMESPACE" "ENTRIES" ${ARGN})
  set(decl "")
  set(rows "")
  foreach(e IN LISTS A_ENTRIES)
    string(APPEND decl "namespace ${e} {\nextern const ${A_TYPE} kDescriptor;\n}\n")
    string(APPEND rows "    &${e}::kDescriptor,\n")
    target_sources(millrace_${library} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${e}.cc)
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/${e}.cc PROPERTIES
      COMPILE_OPTIONS "-include;${CMAKE_CURRENT_BINARY_DIR}/${library}_entries.gen.h")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${library}_entries.gen.h @ONLY CONTENT
"#pragma once
#include \"@A_HEADER@\"
namespace @A_NAMESPACE@ {
@decl@}  // namespace @A_NAMESPACE@
")
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${library}_registry.gen.cc @ONLY CONTENT
"#include \"@library@_entries.gen.h\"
namespace @A_NAMESPACE@ {
static const @A_TYPE@* const kAll[] = {
@rows@};
std::span<const @A_TYPE@* const> All() { return kAll; }
}  // namespace @A_NAMESPACE@
")
  target_sources(millrace_${library} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${library}_registry.gen.cc)
endfunction()

function(millrace_service name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  list(TRANSFORM A_DEPS PREPEND millrace::)
  target_link_libraries(${name} PRIVATE ${A_DEPS})
endfunction()

function(millrace_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;DEPS;THIRD_PARTY;LABELS" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  if(MILLRACE_SANITIZE)
    math(EXPR A_TIMEOUT "${A_TIMEOUT} * 4")
  endif()
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  if("${A_LABELS}" MATCHES "unit|conformance|component")
    set(sanitizers asan tsan)
    foreach(dep IN LISTS A_DEPS)
      millrace_reaches(blind ${dep} "${MR_TSAN_BLIND}")
      if(blind)
        set(sanitizers asan)
      endif()
    endforeach()
    foreach(sanitizer IN LISTS sanitizers)
      list(APPEND A_LABELS ${sanitizer})
      if(NOT TARGET tests_${sanitizer})
        add_custom_target(tests_${sanitizer})
      endif()
      add_dependencies(tests_${sanitizer} ${name})
    endforeach()
  endif()
  list(TRANSFORM A_DEPS PREPEND millrace::)
  target_link_libraries(${name} PRIVATE ${A_DEPS} ${A_THIRD_PARTY} GTest::gmock GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT} LABELS "${A_LABELS}"
    ENVIRONMENT "MILLRACE_BUILD_DIR=${PROJECT_BINARY_DIR};MILLRACE_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
endfunction()

function(millrace_benchmark name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  list(TRANSFORM A_DEPS PREPEND millrace::)
  target_link_libraries(${name} PRIVATE ${A_DEPS} benchmark::benchmark)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endfunction()
