# cmake -DCHECK=<check_ptx.cmake> -DWORK=<directory> -P check_ptx_test.cmake
#
# The checks of cmake/cuda/check_ptx.cmake: each line below in a kernel of its own, refused or not.

set(failures 0)

function(expect what name line)
  set(ptx ${WORK}/check_ptx_test.ptx)
  file(WRITE ${WORK}/f64_entries.txt "# listed\nlisted_.*    a reason\n")
  file(WRITE ${ptx}
    ".version 7.0\n.target sm_80\n.visible .entry first_f64(\n\t.param .f64 p\n)\n{\n\tmul.rn.f64 \t%fd1, %fd2, %fd3;\n\tret;\n}\n"
    "\t// .globl\t${name}\n.visible .entry ${name}(\n\t.param .u64 p\n)\n{\n\t.reg .f64 \t%fd<3>;\n\t${line};\n\tret;\n}\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -DPTX=${ptx} -DF64_ENTRIES=${WORK}/f64_entries.txt -P ${CHECK}
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if((failed AND what STREQUAL accepted) OR (NOT failed AND what STREQUAL refused))
    message("expected to be ${what}: ${name}: ${line}")
    math(EXPR failures "${failures} + 1")
    set(failures ${failures} PARENT_SCOPE)
  endif()
endfunction()

expect(accepted kernel "mul.rn.f32 \t%f1, %f2, %f3")
expect(accepted kernel "fma.rn.f32 \t%f1, %f2, %f3, %f4")
expect(accepted kernel "add.s32 \t%r1, %r2, %r3")
expect(accepted kernel "st.global.v4.f32 \t[%rd1], {%f1, %f2, %f3, %f4}")
expect(accepted kernel "mov.u32 \t%r1, %tid.x  // .approx in words")
expect(refused kernel "mul.rn.ftz.f32 \t%f1, %f2, %f3")
expect(refused kernel "mul.ftz.f32 \t%f1, %f2, %f3")
expect(refused kernel "div.approx.f32 \t%f1, %f2, %f3")
expect(refused kernel "rcp.approx.ftz.f32 \t%f1, %f2")
expect(refused kernel "div.full.f32 \t%f1, %f2, %f3")
expect(refused kernel "mul.f32 \t%f1, %f2, %f3")
expect(refused kernel "add.f32 \t%f1, %f2, %f3")
expect(refused kernel "sub.f64 \t%fd1, %fd2, %fd3")
expect(refused kernel "mad.f32 \t%f1, %f2, %f3, %f4")
expect(refused kernel "ex2.approx.f32 \t%f1, %f2")
expect(refused kernel "tanh.approx.f32 \t%f1, %f2")
expect(refused kernel "cvt.f64.f32 \t%fd1, %f1")
expect(refused kernel "mul.rn.f64 \t%fd1, %fd2, %fd3")
expect(refused kernel "cvt.rn.f32.f64 \t%f1, %fd1")
expect(accepted listed_kernel "mul.rn.f64 \t%fd1, %fd2, %fd3")
expect(refused unlisted_kernel "mul.rn.f64 \t%fd1, %fd2, %fd3")
expect(accepted kernel_f64_s8 "mul.rn.f64 \t%fd1, %fd2, %fd3")

if(failures GREATER 0)
  message(FATAL_ERROR "${failures} wrong")
endif()
