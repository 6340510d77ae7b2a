// Lists as the nodes of a radix tree need them, of which there are millions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tpsim::kvcache {

// Runs of a node: mostly one, which needs no memory of its own. `Run` is plain data.
template <typename Run>
class RunList {
 public:
  RunList() = default;
  RunList(RunList&& other) noexcept : RunList() { swap(other); }
  RunList& operator=(RunList&& other) noexcept {
    swap(other);
    return *this;
  }
  ~RunList() {
    if (capacity_ > 1) delete[] place_.many;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Run* data() { return capacity_ > 1 ? place_.many : &place_.own; }
  const Run* data() const { return capacity_ > 1 ? place_.many : &place_.own; }
  Run* begin() { return data(); }
  Run* end() { return data() + size_; }
  const Run* begin() const { return data(); }
  const Run* end() const { return data() + size_; }
  Run& operator[](std::size_t i) { return data()[i]; }
  const Run& operator[](std::size_t i) const { return data()[i]; }
  Run& front() { return data()[0]; }
  Run& back() { return data()[size_ - 1]; }
  const Run& back() const { return data()[size_ - 1]; }

  void push_back(const Run& run) {
    if (size_ == capacity_) reserve(2 * capacity_);
    data()[size_++] = run;
  }
  // What was there is kept as memory.
  void clear() { size_ = 0; }
  template <typename Iterator>
  void assign(Iterator first, Iterator last) {
    clear();
    const auto count = static_cast<std::uint32_t>(last - first);
    if (count > capacity_) reserve(count);
    std::copy(first, last, data());
    size_ = count;
  }
  // REQUIRES: size <= size().
  void shrink(std::size_t size) { size_ = static_cast<std::uint32_t>(size); }

  template <typename Archive>
  void serialize(Archive& archive) {
    std::vector<Run> runs(begin(), end());
    archive(runs);
    if constexpr (Archive::kReads) assign(runs.begin(), runs.end());
  }

 private:
  void reserve(std::uint32_t capacity) {
    Run* const many = new Run[capacity];
    std::copy(begin(), end(), many);
    if (capacity_ > 1) delete[] place_.many;
    place_.many = many;
    capacity_ = capacity;
  }
  void swap(RunList& other) {
    std::swap(place_, other.place_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  union Place {
    Place() : own() {}
    Run own;
    Run* many;
  };
  Place place_;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 1;  // 1: it is in its own place
};

// Elements that stay where they are, in blocks: none is copied, and hardly any room is empty, as they become
// more.
template <typename T>
class BlockList {
 public:
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return blocks_[i / kBlock][i % kBlock]; }
  const T& operator[](std::size_t i) const { return blocks_[i / kBlock][i % kBlock]; }
  void emplace_back() {
    if (size_ == blocks_.size() * kBlock) blocks_.push_back(std::make_unique<T[]>(kBlock));
    ++size_;
  }
  void clear() {
    blocks_.clear();
    size_ = 0;
  }

  template <typename Archive>
  void serialize(Archive& archive) {
    std::uint64_t size = size_;
    archive(size);
    if constexpr (Archive::kReads) clear();
    for (std::uint64_t i = 0; i < size; ++i) {
      if constexpr (Archive::kReads) emplace_back();
      archive((*this)[i]);
    }
  }

 private:
  static constexpr std::size_t kBlock = 32;

  std::vector<std::unique_ptr<T[]>> blocks_;
  std::size_t size_ = 0;
};

}  // namespace tpsim::kvcache
