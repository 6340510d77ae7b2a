// model.safetensors.index.json: which file of a checkpoint has which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::rank {

// File name in the checkpoint's folder -> names of its tensors, in the index's order.
using WeightMap = std::map<std::string, std::vector<std::string>>;

// `json`: the text of the index; `path` names it in errors. Only the object "weight_map" is read. Throws
// UserError for text that is not JSON, has no weight_map, an empty one or two, names a tensor twice, or names
// something else than a *.safetensors file of the same folder.
WeightMap parse_weight_map(std::string_view json, const std::string& path);

}  // namespace tpsim::rank
