# Headers compiled once for all bundles (TPSIM_BUNDLES). Most of the time to compile goes into reading the standard
# library, fmt, nlohmann/json and Protobuf; a source finds what it includes in memory instead. What dozens of sources
# would make of the libraries' templates is compiled once, too (precompiled.h). Builds without bundles read every
# header, and so find a missing include.

# tpsim_precompile(): gives every target that has been defined the headers. Call it last.
function(tpsim_precompile)
  set(headers <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <span> <string> <string_view>
    <utility> <vector> <google/protobuf/message.h> <google/protobuf/repeated_field.h>
    ${CMAKE_SOURCE_DIR}/launch/precompiled.h)
  tpsim_precompiled_headers(tpsim_headers "" ${headers})
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    tpsim_precompiled_headers(tpsim_headers_quick "${TPSIM_QUICK_TO_BUILD}" ${headers})
  endif()
  tpsim_precompiled_templates(tpsim_templates precompiled.cc)
  if(TPSIM_BUILD_TESTS)
    tpsim_precompiled_headers(tpsim_headers_test "${TPSIM_QUICK_TO_BUILD}" ${headers}
      ${CMAKE_SOURCE_DIR}/launch/precompiled_tests.h)
    target_link_libraries(tpsim_headers_test PRIVATE GTest::gtest)
    tpsim_precompiled_templates(tpsim_test_templates precompiled_tests.cc)
    target_link_libraries(tpsim_test_templates PRIVATE GTest::gtest)
  endif()
  tpsim_precompile_folder(${CMAKE_SOURCE_DIR})
endfunction()

# An object library of one source that is empty: its precompiled headers are what others use again.
function(tpsim_precompiled_headers target options)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${source})
  target_compile_options(${target} PRIVATE ${options})
  target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json protobuf::libprotobuf)
  target_precompile_headers(${target} PRIVATE ${ARGN})
endfunction()

# The templates that those headers promise.
function(tpsim_precompiled_templates target source)
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/launch/${source})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
endfunction()

function(tpsim_precompile_folder folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(options ${target} COMPILE_OPTIONS)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    if(NOT type MATCHES "^(STATIC_LIBRARY|OBJECT_LIBRARY|EXECUTABLE)$" OR target MATCHES "^tpsim_(headers|templates|test_templates)")
      continue()
    endif()
    # The same flags are needed; and the catalogue includes next to nothing.
    if(tpsim_vectorised IN_LIST libraries OR target STREQUAL tpsim_catalogue)
      continue()
    endif()
    set(headers tpsim_headers)
    set(templates tpsim_templates)
    if(options MATCHES "-O1" AND TARGET tpsim_headers_quick)
      set(headers tpsim_headers_quick)
    endif()
    if(libraries MATCHES "GTest")
      set(headers tpsim_headers_test)
      list(PREPEND templates tpsim_test_templates)
    endif()
    target_link_libraries(${target} PRIVATE ${templates})
    target_precompile_headers(${target} REUSE_FROM ${headers})
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
    target_compile_options(${target} PRIVATE -Wno-error=invalid-pch)  # what cannot use them reads the headers
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder ${subfolders})
    tpsim_precompile_folder(${subfolder})
  endforeach()
endfunction()
