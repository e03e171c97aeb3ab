"""What tests ask of the stand-in driver: what is alive, how work is ordered, errors to give."""

import ctypes

U64 = ctypes.c_uint64
_FUNCTIONS = [
    ("set_seed", None, [U64]),
    ("inject", None, [ctypes.c_char_p, U64, ctypes.c_int]),
    ("clear_injections", None, []),
    ("calls", U64, [ctypes.c_char_p]),
    ("reset_calls", None, []),
]


class Live(ctypes.Structure):
    """Made, and not yet destroyed."""

    _fields_ = [
        (name, U64)
        for name in ("allocations", "host_allocations", "streams", "events", "modules", "contexts")
    ]

    def __repr__(self):
        return str({name: getattr(self, name) for name, _ in self._fields_})


_FUNCTIONS += [
    ("live", Live, []),
    ("message", ctypes.c_char_p, []),
    ("reset", None, []),
    ("set_counting", None, [ctypes.c_bool]),
    ("reset_counters", None, []),
    ("counter_count", U64, []),
    ("counters", ctypes.c_bool, [U64, ctypes.c_void_p]),
    ("set_devices", ctypes.c_bool, [ctypes.c_int, ctypes.c_int]),
    ("set_memory", None, [U64]),
    ("pending", U64, []),
]


class Control(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        *((name, ctypes.CFUNCTYPE(result, *taken)) for name, result, taken in _FUNCTIONS),
    ]


def control():
    """Its functions; None where the driver is NVIDIA's, or there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        library.octavo_standin_control.restype = ctypes.POINTER(Control)
        return library.octavo_standin_control().contents
    except (OSError, AttributeError):
        return None
