// Writes safetensors files for tests and fuzzers, well-formed ones and, from the pieces, others.
//
// Source of the format: huggingface/safetensors, README "Format".
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::testing {

struct WrittenTensor {
  std::string name;  // without characters that JSON escapes
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string data;
};

// The header's length, the header, the data.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data);
}

inline std::string header_entry(const WrittenTensor& tensor, std::uint64_t begin) {
  std::string shape;
  for (const std::uint64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
  return "\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(begin + tensor.data.size()) +
         "]}";
}

// The tensors' data in their order, the header padded with spaces as the reference implementation pads it.
inline std::string safetensors_file(const std::vector<WrittenTensor>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const WrittenTensor& tensor : tensors) {
    header += "," + header_entry(tensor, data.size());
    data += tensor.data;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return safetensors_file(header, data);
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace tpsim::testing
