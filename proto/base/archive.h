// The state of objects as bytes, and back: what a checkpoint is made of.
//
// A class names its state once, for both directions:
//
//   template <typename Archive>
//   void serialize(Archive& archive) {
//     archive(rows_, free_, clock_);
//   }
//
// Numbers, enumerations, strings, the containers below, structs of plain data and classes with serialize()
// may stand in the list; what the configuration decides and what is only scratch is left out. Objects that
// are named by pointers are made known with own() where they are written, in an order that depends on the
// state alone, and named by pointer() afterwards. Requests that several hold (std::shared_ptr) are written
// once.
//
// Bytes are those of this machine and of this program's version: whoever reads them makes sure of both, and
// that they are undamaged. Of bytes that are not what was written a StateReader throws std::length_error at
// the latest where they end; it never reads beyond them, and takes no more memory than a multiple of them.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "proto/base/zeroed_array.h"

namespace tpsim {

namespace archive {

template <typename T, typename Archive>
concept Serializable = requires(T& object, Archive& to) {
  object.serialize(to);
};

// What is copied as it is. A struct with pointers or spans must not get here: give it serialize().
template <typename T>
concept Plain = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>;

// Elements of an array that are left out together where all of them are 0.
inline constexpr std::size_t kZeros = 2048;

// Reaches the container that a queue keeps.
template <typename Queue>
struct QueueContent : Queue {
  static typename Queue::container_type& of(Queue& queue) { return queue.*&QueueContent::c; }
};

}  // namespace archive

class StateWriter {
 public:
  static constexpr bool kReads = false;
  using Sink = std::function<void(std::string_view)>;

  // Keeps everything: bytes().
  StateWriter() = default;
  // Hands what was written to `sink` block by block, so that it is never in memory as a whole; the end of it
  // with flush().
  explicit StateWriter(Sink sink) : sink_(std::move(sink)) {}

  // Writes all of them, in order. They are not changed.
  template <typename... T>
  void operator()(const T&... values) {
    (write(const_cast<T&>(values)), ...);
  }
  // From here on `object` may be named by pointer().
  void own(const void* object) { known_.emplace(object, known_.size() + 1); }
  template <typename T>
  void pointer(T* const& object) {
    std::uint64_t number = 0;
    if (object != nullptr) {
      const auto found = known_.find(object);
      if (found == known_.end()) throw std::logic_error("a checkpoint names an object that it does not hold");
      number = found->second;
    }
    write(number);
  }
  template <typename T>
  void pointers(std::vector<T*>& list) {
    std::uint64_t size = list.size();
    write(size);
    for (T*& object : list) pointer(object);
  }

  // `count` elements, or that there are none.
  template <typename T>
  void array(ZeroedArray<T>& elements, std::size_t count) {
    bool present = elements.data() != nullptr;
    write(present);
    for (std::size_t at = 0; present && at < count; at += archive::kZeros) {
      const T* const first = elements.data() + at;
      const std::size_t length = std::min(archive::kZeros, count - at);
      bool zeros = std::all_of(first, first + length, [](T element) { return element == 0; });
      write(zeros);
      if (!zeros) put(first, length * sizeof(T));
    }
  }

  // REQUIRES: there is no sink.
  const std::string& bytes() const { return bytes_; }
  void flush() {
    sink_(bytes_);
    bytes_.clear();
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 16;

  void put(const void* data, std::size_t size) {
    const std::string_view more(static_cast<const char*>(data), size);
    if (!sink_ || bytes_.size() + size <= kBlock) {
      bytes_.append(more);
      return;
    }
    flush();
    if (size <= kBlock)
      bytes_.append(more);
    else
      sink_(more);
  }

  template <typename T>
  void write(T& value) {
    if constexpr (archive::Serializable<T, StateWriter>) {
      value.serialize(*this);
    } else {
      static_assert(archive::Plain<T>, "give it serialize()");
      put(&value, sizeof(T));
    }
  }
  void write(std::string& text) {
    std::uint64_t size = text.size();
    write(size);
    put(text.data(), text.size());
  }
  template <typename List>
  void write_list(List& list) {
    std::uint64_t size = list.size();
    write(size);
    for (auto& element : list) write(element);
  }
  template <typename T>
  void write(std::vector<T>& list) {
    if constexpr (archive::Plain<T> && !archive::Serializable<T, StateWriter>) {
      std::uint64_t size = list.size();
      write(size);
      put(list.data(), list.size() * sizeof(T));
    } else {
      write_list(list);
    }
  }
  void write(std::vector<bool>& list) {
    std::uint64_t size = list.size();
    write(size);
    for (const bool bit : list) {
      const char byte = bit ? 1 : 0;
      put(&byte, 1);
    }
  }
  template <typename T>
  void write(std::deque<T>& list) {
    write_list(list);
  }
  template <typename T, std::size_t kSize>
  void write(std::array<T, kSize>& list) {
    for (T& element : list) write(element);
  }
  template <typename T>
  void write(std::optional<T>& value) {
    bool present = value.has_value();
    write(present);
    if (present) write(*value);
  }
  template <typename A, typename B>
  void write(std::pair<A, B>& pair) {
    write(const_cast<std::remove_const_t<A>&>(pair.first));
    write(pair.second);
  }
  template <typename... T>
  void write(std::tuple<T...>& tuple) {
    std::apply(
        [this](auto&... parts) { (write(const_cast<std::remove_cvref_t<decltype(parts)>&>(parts)), ...); },
        tuple);
  }
  template <typename... T>
  void write(std::map<T...>& map) {
    write_list(map);
  }
  template <typename... T>
  void write(std::unordered_map<T...>& map) {
    write_list(map);
  }
  template <typename Set>
  void write_set(Set& set) {
    std::uint64_t size = set.size();
    write(size);
    for (const auto& element : set) write(const_cast<std::remove_cvref_t<decltype(element)>&>(element));
  }
  template <typename... T>
  void write(std::set<T...>& set) {
    write_set(set);
  }
  template <typename... T>
  void write(std::unordered_set<T...>& set) {
    write_set(set);
  }
  template <typename... T>
  void write(std::priority_queue<T...>& queue) {
    write(archive::QueueContent<std::priority_queue<T...>>::of(queue));
  }
  // Owned, and known from then on.
  template <typename T>
  void write(std::unique_ptr<T>& object) {
    bool present = object != nullptr;
    write(present);
    if (!present) return;
    own(object.get());
    write(*object);
  }
  template <typename T>
  void write(std::shared_ptr<const T>& object) {
    const auto [known, is_new] = shared_.try_emplace(object.get(), shared_.size());
    std::uint64_t number = object == nullptr ? UINT64_MAX : known->second;
    bool written = object != nullptr && is_new;
    write(number);
    write(written);
    if (written) write(const_cast<T&>(*object));
  }
  template <typename UInt, std::size_t... kRest>
  void write(std::mersenne_twister_engine<UInt, kRest...>& random) {
    write_engine(random);
  }
  template <typename Engine>
  void write_engine(Engine& random) {
    std::ostringstream text;
    text << random;
    std::string string = text.str();
    write(string);
  }

  Sink sink_;          // empty: everything is kept
  std::string bytes_;  // that the sink has not got
  std::unordered_map<const void*, std::uint64_t> known_;
  std::unordered_map<const void*, std::uint64_t> shared_;
};

class StateReader {
 public:
  static constexpr bool kReads = true;

  // `bytes` must outlive it.
  explicit StateReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (read(values), ...);
  }
  void own(void* object) { known_.push_back(object); }
  template <typename T>
  void pointer(T*& object) {
    std::uint64_t number = 0;
    read(number);
    if (number > known_.size()) fail();
    object = number == 0 ? nullptr : static_cast<T*>(known_[number - 1]);
  }
  template <typename T>
  void pointers(std::vector<T*>& list) {
    list.assign(size(sizeof(std::uint64_t)), nullptr);
    for (T*& object : list) pointer(object);
  }

  template <typename T>
  void array(ZeroedArray<T>& elements, std::size_t count) {
    bool present = false;
    read(present);
    elements = present ? ZeroedArray<T>(count) : ZeroedArray<T>();
    for (std::size_t at = 0; present && at < count; at += archive::kZeros) {
      bool zeros = false;
      read(zeros);
      if (!zeros) take(elements.data() + at, std::min(archive::kZeros, count - at) * sizeof(T));
    }
  }

  // What was not read yet.
  std::string_view rest() const { return bytes_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  [[noreturn]] static void fail() { throw std::length_error("the state ends too early"); }

  void take(void* data, std::size_t size) {
    if (size > bytes_.size()) fail();
    if (size > 0) std::memcpy(data, bytes_.data(), size);
    bytes_.remove_prefix(size);
  }
  // Of a list whose elements have so many bytes at least.
  std::size_t size(std::size_t element) {
    std::uint64_t count = 0;
    read(count);
    if (element > 0 && count > bytes_.size() / element) fail();
    return count;
  }

  template <typename T>
  void read(T& value) {
    if constexpr (archive::Serializable<T, StateReader>) {
      value.serialize(*this);
    } else {
      static_assert(archive::Plain<T>, "give it serialize()");
      take(&value, sizeof(T));
    }
  }
  void read(bool& value) {
    unsigned char byte = 0;
    take(&byte, 1);
    if (byte > 1) fail();
    value = byte == 1;
  }
  void read(std::string& text) {
    text.resize(size(1));
    take(text.data(), text.size());
  }
  // Element by element: how many there are said to be is worth no memory.
  template <typename List>
  void read_list(List& list) {
    list.clear();
    std::size_t left = size(1);
    if constexpr (requires { list.reserve(left); })
      list.reserve(std::min(left, 4 * bytes_.size() / sizeof(typename List::value_type)));
    for (; left > 0; --left) read(list.emplace_back());
  }
  template <typename T>
  void read(std::vector<T>& list) {
    if constexpr (archive::Plain<T> && !archive::Serializable<T, StateReader>) {
      list.resize(size(sizeof(T)));
      take(list.data(), list.size() * sizeof(T));
    } else {
      read_list(list);
    }
  }
  void read(std::vector<bool>& list) {
    list.assign(size(1), false);
    for (std::vector<bool>::reference one : list) {
      bool bit = false;
      read(bit);
      one = bit;
    }
  }
  template <typename T>
  void read(std::deque<T>& list) {
    read_list(list);
  }
  template <typename T, std::size_t kSize>
  void read(std::array<T, kSize>& list) {
    for (T& element : list) read(element);
  }
  template <typename T>
  void read(std::optional<T>& value) {
    bool present = false;
    read(present);
    if (!present) {
      value.reset();
      return;
    }
    if (!value) value.emplace();
    read(*value);
  }
  template <typename A, typename B>
  void read(std::pair<A, B>& pair) {
    read(pair.first);
    read(pair.second);
  }
  template <typename... T>
  void read(std::tuple<T...>& tuple) {
    std::apply([this](auto&... parts) { (read(parts), ...); }, tuple);
  }
  template <typename Map>
  void read_map(Map& map) {
    map.clear();
    for (std::size_t left = size(1); left > 0; --left) {
      typename Map::key_type key{};
      typename Map::mapped_type value{};
      read(key);
      read(value);
      map.emplace(std::move(key), std::move(value));
    }
  }
  template <typename... T>
  void read(std::map<T...>& map) {
    read_map(map);
  }
  template <typename... T>
  void read(std::unordered_map<T...>& map) {
    read_map(map);
  }
  template <typename Set>
  void read_set(Set& set) {
    set.clear();
    for (std::size_t left = size(1); left > 0; --left) {
      typename Set::key_type key{};
      read(key);
      set.insert(std::move(key));
    }
  }
  template <typename... T>
  void read(std::set<T...>& set) {
    read_set(set);
  }
  template <typename... T>
  void read(std::unordered_set<T...>& set) {
    read_set(set);
  }
  template <typename... T>
  void read(std::priority_queue<T...>& queue) {
    read(archive::QueueContent<std::priority_queue<T...>>::of(queue));
  }
  template <typename T>
  void read(std::unique_ptr<T>& object) {
    bool present = false;
    read(present);
    object.reset();
    if (!present) return;
    object = std::make_unique<T>();
    own(object.get());
    read(*object);
  }
  template <typename T>
  void read(std::shared_ptr<const T>& object) {
    std::uint64_t number = 0;
    bool written = false;
    read(number);
    read(written);
    object.reset();
    if (number == UINT64_MAX) return;
    if (written) {
      auto made = std::make_shared<T>();
      read(*made);
      shared_[number] = made;
    }
    const auto known = shared_.find(number);
    if (known == shared_.end()) fail();
    object = std::static_pointer_cast<const T>(known->second);
  }
  template <typename UInt, std::size_t... kRest>
  void read(std::mersenne_twister_engine<UInt, kRest...>& random) {
    std::string string;
    read(string);
    std::istringstream text(string);
    text >> random;
    if (!text) fail();
  }

  std::string_view bytes_;
  std::vector<void*> known_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const void>> shared_;
};

}  // namespace tpsim
