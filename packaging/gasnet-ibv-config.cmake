# find_package(gasnet-ibv) gives gasnet-ibv::seq, gasnet-ibv::parsync and gasnet-ibv::par (shared libraries), the same with
# -debug behind, which check their programs, and each with -static behind. Each carries its thread mode, so targets need nothing but target_link_libraries.
# Links are followed first: where /lib is a link to /usr/lib, the prefix is /usr however this file was reached.
get_filename_component(_gasnet_ibv_here "${CMAKE_CURRENT_LIST_DIR}" REALPATH)
get_filename_component(_gasnet_ibv_prefix "${_gasnet_ibv_here}/../../.." ABSOLUTE)
set(gasnet-ibv_LAUNCHER "${_gasnet_ibv_prefix}/bin/gasnetrun_ibv")

foreach(_gasnet_ibv_mode IN ITEMS seq parsync par seq-debug parsync-debug par-debug)
  string(TOUPPER "${_gasnet_ibv_mode}" _gasnet_ibv_upper)
  string(REPLACE "-DEBUG" ";GASNET_DEBUG=1" _gasnet_ibv_upper "${_gasnet_ibv_upper}")
  foreach(_gasnet_ibv_kind IN ITEMS shared static)
    set(_gasnet_ibv_target "gasnet-ibv::${_gasnet_ibv_mode}")
    set(_gasnet_ibv_file "libgasnet-ibv-${_gasnet_ibv_mode}.so")
    set(_gasnet_ibv_libraries pthread m)
    if(_gasnet_ibv_kind STREQUAL "static")
      set(_gasnet_ibv_target "${_gasnet_ibv_target}-static")
      set(_gasnet_ibv_file "libgasnet-ibv-${_gasnet_ibv_mode}.a")
      set(_gasnet_ibv_libraries pthread dl m)
    endif()
    if(NOT TARGET "${_gasnet_ibv_target}" AND EXISTS "${_gasnet_ibv_prefix}/lib/${_gasnet_ibv_file}")
      string(TOUPPER "${_gasnet_ibv_kind}" _gasnet_ibv_type)
      add_library("${_gasnet_ibv_target}" ${_gasnet_ibv_type} IMPORTED)
      set_target_properties("${_gasnet_ibv_target}" PROPERTIES
        IMPORTED_LOCATION "${_gasnet_ibv_prefix}/lib/${_gasnet_ibv_file}"
        INTERFACE_INCLUDE_DIRECTORIES "${_gasnet_ibv_prefix}/include"
        INTERFACE_COMPILE_DEFINITIONS "GASNET_${_gasnet_ibv_upper}"
        INTERFACE_LINK_LIBRARIES "${_gasnet_ibv_libraries}")
      if(_gasnet_ibv_kind STREQUAL "shared")
        set_target_properties("${_gasnet_ibv_target}" PROPERTIES
          IMPORTED_SONAME "libgasnet-ibv-${_gasnet_ibv_mode}.so.1")
      endif()
    endif()
  endforeach()
endforeach()
foreach(_gasnet_ibv_variable IN ITEMS here prefix mode upper kind target file libraries type)
  unset("_gasnet_ibv_${_gasnet_ibv_variable}")
endforeach()
