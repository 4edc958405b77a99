# How every folder of src/ is built: one static library per folder, one thin program per process.

add_library(sandbox_options INTERFACE)
target_include_directories(sandbox_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(sandbox_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Werror -fno-omit-frame-pointer -fstack-protector-strong
  # g++ 12 sees overlapping copies in `"text" + std::string` where there are none (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<CONFIG:Debug>:-O1 -g>)
target_compile_definitions(sandbox_options INTERFACE
  SANDBOX_VERSION="${PROJECT_VERSION}" $<$<NOT:$<CONFIG:Debug>>:_FORTIFY_SOURCE=2>)
if(SANDBOX_SANITIZE)
  target_compile_options(sandbox_options INTERFACE -fsanitize=${SANDBOX_SANITIZE}
    -fno-sanitize-recover=all
    # With its checks in between, g++ no longer sees that a variant's other half is never destroyed.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(sandbox_options INTERFACE -fsanitize=${SANDBOX_SANITIZE})
  target_compile_definitions(sandbox_options INTERFACE SANDBOX_SANITIZED=1)
endif()
if(SANDBOX_FUZZ)
  target_compile_options(sandbox_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# sandbox_library(base SOURCES a.cc b.cc DEPENDS fmt::fmt)
function(sandbox_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(sandbox_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(sandbox_${name} PUBLIC sandbox_options ${ARG_DEPENDS})
endfunction()

# sandbox_program(sandbox-gateway SOURCES main.cc DEPENDS sandbox_gateway)
function(sandbox_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sandbox_options ${ARG_DEPENDS})
  target_link_options(${name} PRIVATE -Wl,-z,relro,-z,now)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# pkg(SODIUM libsodium) gives the imported target PkgConfig::SODIUM
macro(pkg prefix module)
  if(NOT TARGET PkgConfig::${prefix})
    pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET GLOBAL ${module})
  endif()
endmacro()
