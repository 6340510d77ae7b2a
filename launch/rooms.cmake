# Which headers a target sees.
#
# tpsim_room(TARGET) gives TARGET, and whoever links it, the headers of the folder that calls it, under their paths
# from the project's root ("kvcache/pools/page_run.h"), and no others: subfolders are rooms of their own, and a folder whose
# target is not linked cannot be included. So the arrows between folders are those of target_link_libraries, at every
# depth, and they go one way because CMake's do.
function(tpsim_room target)
  file(RELATIVE_PATH room ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE "/" "." name ${room})
  set(view ${CMAKE_BINARY_DIR}/rooms/${name})
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  file(GLOB seen ${view}/${room}/*.h)
  foreach(link ${seen})
    get_filename_component(header ${link} NAME)
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${header})
      file(REMOVE ${link})
    endif()
  endforeach()
  file(MAKE_DIRECTORY ${view}/${room})
  foreach(header ${headers})
    get_filename_component(header_name ${header} NAME)
    file(CREATE_LINK ${header} ${view}/${room}/${header_name} SYMBOLIC)
  endforeach()
  target_include_directories(${target} PUBLIC ${view})
endfunction()

# tpsim_alone(SOURCE...): sources that are alike by design, and name what they define alike, are in no bundle
# (TPSIM_BUNDLES). A test rather has a namespace of its file's name.
function(tpsim_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
