// Lists as the nodes of a radix tree need them, of which there are millions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tpsim::kvcache {

// Runs of a node: mostly one, which needs no memory of its own, so that the list is as large as a run. `Run`
// is plain data with a `first`; `Length`: its member of less than 2^31, above 0 in a run.
template <typename Run, std::uint32_t Run::*Length>
class RunList {
 public:
  RunList() = default;
  RunList(RunList&& other) noexcept : RunList() { std::swap(own_, other.own_); }
  RunList& operator=(RunList&& other) noexcept {
    std::swap(own_, other.own_);
    return *this;
  }
  ~RunList() {
    if (has_block()) delete[] block();
  }

  std::size_t size() const { return has_block() ? block()->first : own_.*Length != 0; }
  bool empty() const { return size() == 0; }
  Run* data() { return has_block() ? block() + 1 : &own_; }
  const Run* data() const { return has_block() ? block() + 1 : &own_; }
  Run* begin() { return data(); }
  Run* end() { return data() + size(); }
  const Run* begin() const { return data(); }
  const Run* end() const { return data() + size(); }
  Run& operator[](std::size_t i) { return data()[i]; }
  const Run& operator[](std::size_t i) const { return data()[i]; }
  Run& front() { return data()[0]; }
  Run& back() { return data()[size() - 1]; }
  const Run& back() const { return data()[size() - 1]; }

  void push_back(const Run& run) {
    const std::size_t size = resize(this->size() + 1);
    data()[size - 1] = run;
  }
  // What was there is kept as memory.
  void clear() { shrink(0); }
  template <typename Iterator>
  void assign(Iterator first, Iterator last) {
    resize(static_cast<std::size_t>(last - first));
    std::copy(first, last, data());
  }
  // REQUIRES: size <= size().
  void shrink(std::size_t size) {
    if (has_block())
      block()->first = static_cast<std::uint32_t>(size);
    else if (size == 0)
      own_ = {};
  }

  template <typename Archive>
  void serialize(Archive& archive) {
    std::vector<Run> runs(begin(), end());
    archive(runs);
    if constexpr (Archive::kReads) assign(runs.begin(), runs.end());
  }

 private:
  static constexpr std::uint32_t kBlock = 1U << 31;  // in own_'s length: it is the address of a block

  bool has_block() const { return (own_.*Length & kBlock) != 0; }
  // In front of its runs one that says how many there are, and how many there could be.
  Run* block() const {
    const std::uintptr_t high = own_.*Length & ~kBlock;
    const std::uintptr_t address = high << 32 | static_cast<std::uint32_t>(own_.first);
    return reinterpret_cast<Run*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  // New runs are of any value. Returns `size`.
  std::size_t resize(std::size_t size) {
    const std::size_t capacity = has_block() ? block()->*Length : 1;
    if (size > capacity) {
      const std::size_t room = std::max(size, 2 * capacity);
      Run* const larger = new Run[room + 1];
      std::copy(begin(), end(), larger + 1);
      if (has_block()) delete[] block();
      const auto address = reinterpret_cast<std::uintptr_t>(larger);
      own_.first = static_cast<std::uint32_t>(address);
      own_.*Length = static_cast<std::uint32_t>(address >> 32) | kBlock;
      larger->*Length = static_cast<std::uint32_t>(room);
    }
    shrink(size);
    return size;
  }

  Run own_ = {};
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
