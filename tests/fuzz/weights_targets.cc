#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/weights/checkpoint.h"
#include "rank/weights/checkpoint_json.h"
#include "rank/weights/safetensors.h"
#include "rank/weights/stored_type.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/unit/rank/weights/safetensors_writer.h"

namespace tpsim::fuzz {
namespace {

void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// What SafetensorsHeader promises, and that what it promises can be read.
void check_header(const rank::SafetensorsHeader& header, std::string_view file) {
  check(header.data_begin() <= file.size(), "the data begins in the file");
  const std::string_view data = file.substr(header.data_begin());
  std::uint64_t covered = 0;
  for (const rank::StoredTensor& tensor : header.tensors()) {
    check(header.find(tensor.name) == &tensor, "every tensor is found by its name");
    check(tensor.begin == covered && tensor.end >= tensor.begin, "tensors cover the data");
    covered = tensor.end;
    check(covered <= data.size(), "tensors are in the file");
    std::uint64_t elements = 1;
    for (const std::uint64_t size : tensor.shape) elements *= size;
    check(elements == tensor.elements, "elements is the shape's product");
    check(elements * rank::bits_of(tensor.type) == 8 * (tensor.end - tensor.begin),
          "the size fits the shape");
    if (!rank::is_readable(tensor.type)) continue;
    std::vector<float> out(tensor.elements);
    rank::to_fp32(tensor.type, data.data() + tensor.begin, out.size(), out.data());
  }
  check(covered == data.size(), "tensors cover the data");
}

// Whatever the tensors say of each other, it is read or refused.
void check_quantised(const rank::SafetensorsHeader& header, std::string_view file) {
  const auto find = [&](const std::string& name) -> std::optional<rank::StoredView> {
    const rank::StoredTensor* tensor = header.find(name);
    if (tensor == nullptr) return std::nullopt;
    return rank::StoredView{name, tensor->type, tensor->shape, tensor->elements,
                            file.data() + header.data_begin() + tensor->begin};
  };
  for (const rank::StoredTensor& tensor : header.tensors()) {
    std::string name = tensor.name;
    for (const std::string_view end : {"_blocks", "_packed"}) {
      if (name.ends_with(end)) name.resize(name.size() - end.size());
    }
    if (name.ends_with(".qweight")) name.replace(name.size() - 8, 8, ".weight");
    const auto quantised = rank::open_quantised(find, name, 1, "fuzzed");
    if (quantised == nullptr) continue;
    std::uint64_t elements = 1;
    for (const std::uint64_t size : quantised->shape()) elements *= size;
    check(elements <= 64 * file.size(), "every element has a code");
    std::vector<float> out(elements);
    quantised->read(0, elements, out.data());
  }
}

template <typename Parse>
void parse_or_refuse(const Parse& parse) {
  try {
    parse();
  } catch (const UserError& error) {
    check(std::string_view(error.what()).starts_with("fuzzed"), "a complaint begins with the file's name");
    check(std::string_view(error.what()).size() < 1000, "a complaint is short");
  }
}

void read_file(std::string_view bytes) {
  // Of its own length on the heap, so that a sanitizer sees reads behind the end.
  const std::vector<char> file(bytes.begin(), bytes.end());
  const std::string_view view(file.data(), file.size());
  parse_or_refuse([&] {
    const rank::SafetensorsHeader header(view, "fuzzed");
    check_header(header, view);
    check_quantised(header, view);
  });
}

// The bytes as a header, with its length before it and some data behind it.
void read_header(std::string_view bytes) {
  read_file(testing::safetensors_file(bytes, std::string(64, '\x7b')));
}

void read_index(std::string_view bytes) {
  parse_or_refuse([&] {
    std::size_t files = 0;
    for (const auto& [name, tensors] : rank::parse_weight_map(bytes, "fuzzed")) {
      check(name.ends_with(".safetensors") && name.find('/') == std::string::npos, "files are in the folder");
      check(!tensors.empty(), "every file has a tensor");
      ++files;
    }
    check(files > 0, "there is a file");
  });
}

constexpr std::array<FuzzTarget, 3> kTargets = {
    {{"safetensors", read_file}, {"safetensors_header", read_header}, {"safetensors_index", read_index}}};

}  // namespace

std::span<const FuzzTarget> weights_targets() { return kTargets; }

}  // namespace tpsim::fuzz
