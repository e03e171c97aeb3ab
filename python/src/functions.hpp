// The functions of the module, in the order of their arguments in Python.
#pragma once

#include "arguments.hpp"
#include "packed_weight.hpp"

namespace octavo::python {

nb::object quantize(nb::handle x, nb::handle scale, nb::handle zero_point, nb::handle dtype,
                    nb::handle axis, nb::handle group_size, nb::handle q_min, nb::handle q_max,
                    nb::handle profile, nb::handle out, nb::handle stream);
nb::object quantize_backward(nb::handle x, nb::handle dy, nb::handle scale, nb::handle zero_point,
                             nb::handle dtype, nb::handle axis, nb::handle group_size,
                             nb::handle q_min, nb::handle q_max, nb::handle profile, nb::handle out,
                             nb::handle stream);
nb::object fake_quantize(nb::handle x, nb::handle scale, nb::handle zero_point, nb::handle q_min,
                         nb::handle q_max, nb::handle axis, nb::handle group_size,
                         nb::handle profile, nb::handle out, nb::handle stream);
nb::object fake_quantize_backward(nb::handle x, nb::handle dy, nb::handle scale,
                                  nb::handle zero_point, nb::handle q_min, nb::handle q_max,
                                  nb::handle axis, nb::handle group_size, nb::handle profile,
                                  nb::handle out, nb::handle stream);
nb::object dequantize(nb::handle q, nb::handle scale, nb::handle zero_point, nb::handle dtype,
                      nb::handle q_dtype, nb::handle length, nb::handle axis, nb::handle group_size,
                      nb::handle out, nb::handle stream);
nb::object dequantize_backward(nb::handle dy, nb::handle scale, nb::handle axis,
                               nb::handle group_size, nb::handle out, nb::handle stream);
/// (q, scale, zero_point)
using Quantized = nb::typed<nb::tuple, nb::object, nb::object, nb::object>;
Quantized quantize_dynamic(nb::handle x, nb::handle scope, nb::handle mode, nb::handle dtype,
                           nb::handle axis, nb::handle group_size, nb::handle q_min,
                           nb::handle q_max, nb::handle profile, nb::handle out, nb::handle stream);

nb::object linear(nb::handle x, nb::handle weight_q, nb::handle weight_scale, nb::handle bias,
                  nb::handle quantized, nb::handle group_size, nb::handle weight_zero_point,
                  nb::handle q_dtype, nb::handle length, nb::handle mode, nb::handle residual,
                  nb::handle relu, nb::handle out_dtype, nb::handle profile, nb::handle out,
                  nb::handle stream);
nb::object float_linear(nb::handle x, nb::handle weight, nb::handle bias, nb::handle residual,
                        nb::handle relu, nb::handle out_dtype, nb::handle out, nb::handle stream);
nb::object smoothquant_linear(nb::handle x_q, nb::handle act_scale, nb::handle weight_q,
                              nb::handle weight_scale, nb::handle bias, nb::handle act_zero_point,
                              nb::handle residual, nb::handle relu, nb::handle out_dtype,
                              nb::handle out_scale, nb::handle out_zero_point, nb::handle profile,
                              nb::handle out, nb::handle stream, nb::handle group_size,
                              nb::handle weight_zero_point, nb::handle q_dtype, nb::handle length);
nb::object quantized_matmul(nb::handle x_q, nb::handle weight_q, nb::handle act_scale,
                            nb::handle weight_scale, nb::handle act_zero_point,
                            nb::handle weight_zero_point, nb::handle bias, nb::handle residual,
                            nb::handle relu, nb::handle out_dtype, nb::handle out_scale,
                            nb::handle out_zero_point, nb::handle profile, nb::handle out,
                            nb::handle stream, nb::handle group_size, nb::handle q_dtype,
                            nb::handle length);
nb::object int_matmul(nb::handle x_q, nb::handle weight_q, nb::handle act_zero_point,
                      nb::handle weight_zero_point, nb::handle out, nb::handle stream);
nb::object embedding(nb::handle indices, nb::handle table, nb::handle scale, nb::handle zero_point,
                     nb::handle group_size, nb::handle q_dtype, nb::handle length,
                     nb::handle out_dtype, nb::handle out, nb::handle stream);
PyPackedWeight pack_weight(nb::handle weight_q, nb::handle scale, nb::handle zero_point,
                           nb::handle group_size, nb::handle q_dtype, nb::handle length);

/// Adds PackedWeight.
void define_packed_weight(nb::module_& m);
/// Adds Statistics and the functions of smoothing.
void define_offline(nb::module_& m);

}  // namespace octavo::python
