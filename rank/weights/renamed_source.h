// A checkpoint that calls some of its tensors otherwise than most do (TensorNames::renamed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

class RenamedSource final : public TensorSource {
 public:
  using Names = std::vector<std::pair<std::string, std::string>>;
  // In every name the first of a pair, where it occurs, becomes the second; pair after pair.
  // REQUIRES: `source` outlives this.
  RenamedSource(const TensorSource& source, Names names) : source_(source), names_(std::move(names)) {}

  bool has(const std::string& name) const override { return source_.has(theirs(name)); }
  void require(const std::string& name, const std::vector<std::uint64_t>& shape) const override {
    source_.require(theirs(name), shape);
  }
  void read(const std::string& name, std::uint64_t first, std::uint64_t count, float* out) const override {
    source_.read(theirs(name), first, count, out);
  }
  std::vector<std::int64_t> integers(const std::string& name, std::uint64_t count) const override {
    return source_.integers(theirs(name), count);
  }

 private:
  std::string theirs(std::string name) const {
    for (const auto& [ours, other] : names_) {
      if (const std::size_t at = name.find(ours); at != std::string::npos)
        name.replace(at, ours.size(), other);
    }
    return name;
  }

  const TensorSource& source_;
  const std::vector<std::pair<std::string, std::string>> names_;
};

}  // namespace tpsim::rank
