// What measured loads say of the constants of the host, and how far off a load is by what the others say.
//
// The constants that the loads of a GPU hang on are fitted to their steps as `tpsim calibrate` does
// (launch/lab/calibrate/serving_fit.h, coefficient_fit.h), once to all loads and once without each group,
// along slopes that are taken anew where a fit has led to. Then every load is served again at the constants
// fitted to all, and at those of the fit without its group. A constant that the others do not tell keeps the
// profile's value, and the fit says so. Kernels' coefficients stay: no load was fitted to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/lab/measurements/measurement_formats.h"
#include "proto/validation.pb.h"

namespace tpsim::launch {

// What a group may be: server, model, hardware, backend, tp, load_kind or settings.
std::vector<std::string_view> leave_one_out_groups();

// Sets `refitted` and `left_out` of the rows' figures; loads whose group is the only one of its GPU get
// neither. rows[i] is what predict_load() made of loads[i]; refused ones are passed over. `threads` at once;
// what `on_tick` throws, which is called on this thread now and then with the loads served so far and those
// to be served at most, is passed on and leaves the rows as they were.
proto::LeaveOneOut leave_one_out(const std::vector<MeasuredLoad>& loads, const std::string& by,
                                 std::uint32_t threads,
                                 const std::function<void(std::size_t done, std::size_t most)>& on_tick,
                                 std::vector<proto::ValidatedRow>& rows);

}  // namespace tpsim::launch
