// The state of objects as bytes, and back: what a checkpoint is made of.
//
// A class names its state once, for both directions:
//
//   auto state() { return std::tie(rows_, free_, clock_); }
//
// or, where a list does not do, in a template serialize(Archive& archive), which calls archive(rows_) and so
// on. Numbers, enumerations, strings, the standard containers, structs of plain data and such classes may
// stand in the list; what the configuration decides and what is only scratch is left out. Objects that are
// named by pointers are given to owned() where they are written, or belong to a std::unique_ptr, in an order
// that depends on the state alone; pointers to them may stand in lists afterwards. Requests that several hold
// (std::shared_ptr) are written once.
//
// Bytes are those of this machine and of this program's version: whoever reads them makes sure of both, and
// that they are undamaged. Of bytes that are not what was written a StateReader throws std::length_error at
// the latest where they end; it never reads beyond them, and takes no more memory than a multiple of them.
//
// A library's archive (cereal) would take over the standard containers, a third of this file, and leave the
// rest here: objects named by pointers, plain structs, arrays of zeros, blocks, and sizes that are checked
// before memory is taken for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/base/zeroed_array.h"

namespace tpsim {

// What both directions share. `Self` has bytes(data, size), which puts or takes them, and a reader left(),
// how many there are to take.
template <typename Self, bool kReading>
class StateArchive {
 public:
  static constexpr bool kReads = kReading;

  // All of them, in order. A writer does not change them.
  template <typename... T>
  void operator()(T&&... values) {
    (visit(const_cast<std::remove_cvref_t<T>&>(values)), ...);
  }

  // Objects that pointers may name from then on; as many of them are there to read.
  template <typename List>
  void owned(List& objects) {
    for (auto& object : objects) {
      own(&object);
      visit(object);
    }
  }
  // `count` elements, or that there are none.
  template <typename T>
  void array(ZeroedArray<T>& elements, std::size_t count) {
    constexpr std::size_t kTogether = 2048;  // elements that are left out together where all of them are 0
    bool present = elements.data() != nullptr;
    visit(present);
    if constexpr (kReads) elements = present ? ZeroedArray<T>(count) : ZeroedArray<T>();
    for (std::size_t at = 0; present && at < count; at += kTogether) {
      T* const first = elements.data() + at;
      const std::size_t length = std::min(kTogether, count - at);
      bool zeros = !kReads && std::all_of(first, first + length, [](T element) { return element == 0; });
      visit(zeros);
      if (!zeros) self().bytes(first, length * sizeof(T));
    }
  }

 protected:
  StateArchive() {
    if constexpr (kReads) {
      known_.emplace_back();
      shared_.emplace_back();
    } else {
      known_.emplace(nullptr, 0);
      shared_.emplace(nullptr, 0);
    }
  }
  [[noreturn]] static void fail() { throw std::length_error("the state ends too early"); }

 private:
  template <typename T>
  static constexpr bool kNamesState = requires(T& value) {
    value.state();
  };
  // What is copied as it is. A struct with pointers or spans must not get here: give it state().
  template <typename T>
  static constexpr bool kPlain = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
                                 !kNamesState<T> && !requires(T & value, Self& to) {
    value.serialize(to);
  };
  // A map's element with a key that can be read.
  template <typename T>
  struct Changeable : std::type_identity<T> {};
  template <typename Key, typename Value>
  struct Changeable<std::pair<const Key, Value>> : std::type_identity<std::pair<Key, Value>> {};

  Self& self() { return static_cast<Self&>(*this); }
  void own(void* object) {
    if constexpr (kReads) {
      known_.push_back(object);
    } else {
      known_.emplace(object, known_.size());
    }
  }
  template <typename T>
  static std::remove_const_t<T>& unconst(T& value) {
    return const_cast<std::remove_const_t<T>&>(value);
  }

  // Of a list whose elements have `least` bytes or more.
  std::uint64_t size(std::uint64_t count, std::size_t least = 1) {
    visit(count);
    if constexpr (kReads) {
      if (count > self().left() / least) fail();
    }
    return count;
  }
  // That was read, up to `most`.
  std::uint64_t number(std::uint64_t most) {
    std::uint64_t number = 0;
    visit(number);
    if (number > most) fail();
    return number;
  }

  template <typename T>
  void visit(T& value) {
    if constexpr (kNamesState<T>) {
      std::apply(*this, value.state());
    } else if constexpr (requires { value.serialize(self()); }) {
      value.serialize(self());
    } else if constexpr (kPlain<T>) {
      self().bytes(&value, sizeof(T));
    } else if constexpr (requires { typename T::key_type; }) {
      visit_set(value);
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      std::apply([this](auto&... parts) { (visit(unconst(parts)), ...); }, value);
    } else {
      visit_list(value);
    }
  }
  // Of an object that is known, or null.
  template <typename T>
  void visit(T*& object) {
    if constexpr (kReads) {
      object = static_cast<T*>(known_[number(known_.size() - 1)]);
    } else {
      const auto found = known_.find(object);
      if (found == known_.end()) throw std::logic_error("a checkpoint names an object that it does not hold");
      visit(found->second);
    }
  }
  void visit(bool& value) {
    auto byte = static_cast<std::uint8_t>(value);
    visit(byte);
    if (byte > 1) fail();
    value = byte == 1;
  }
  void visit(std::vector<bool>& bits) {
    std::vector<std::uint8_t> bytes(bits.begin(), bits.end());
    visit(bytes);
    bits.assign(bytes.begin(), bytes.end());
  }
  // Strings, vectors, deques.
  template <typename List>
  void visit_list(List& list) {
    using Element = typename List::value_type;
    if constexpr (kPlain<Element> && requires { list.data(); }) {
      list.resize(size(list.size(), sizeof(Element)));
      self().bytes(list.data(), list.size() * sizeof(Element));
    } else {
      std::uint64_t count = size(list.size());
      // Element by element: how many there are said to be is worth no memory.
      if constexpr (kReads) list.clear();
      for (std::uint64_t i = 0; i < count; ++i) {
        if constexpr (kReads) list.emplace_back();
        visit(list[i]);
      }
    }
  }
  // Sets and maps.
  template <typename Set>
  void visit_set(Set& set) {
    std::uint64_t count = size(set.size());
    if constexpr (kReads) {
      for (set.clear(); count > 0; --count) {
        typename Changeable<typename Set::value_type>::type element{};
        visit(element);
        set.insert(std::move(element));
      }
    } else {
      for (auto& element : set) visit(unconst(element));
    }
  }
  template <typename T, typename List, typename Less>
  void visit(std::priority_queue<T, List, Less>& queue) {
    struct Content : std::priority_queue<T, List, Less> {
      static List& of(std::priority_queue<T, List, Less>& queue) { return queue.*&Content::c; }
    };
    visit(Content::of(queue));
  }
  template <typename T>
  void visit(std::optional<T>& value) {
    bool present = value.has_value();
    visit(present);
    if (present) {
      visit(value ? *value : value.emplace());
    } else {
      value.reset();
    }
  }
  // Owned, and known from then on.
  template <typename T>
  void visit(std::unique_ptr<T>& object) {
    bool present = object != nullptr;
    visit(present);
    if constexpr (kReads) object = present ? std::make_unique<T>() : nullptr;
    if (!present) return;
    own(object.get());
    visit(*object);
  }
  // By its number; where that is a new one, the object follows.
  template <typename T>
  void visit(std::shared_ptr<const T>& object) {
    const std::uint64_t next = shared_.size();
    if constexpr (kReads) {
      const std::uint64_t known = number(next);
      if (known == next) {
        const auto made = std::make_shared<T>();
        shared_.push_back(made);
        visit(*made);
      }
      object = std::static_pointer_cast<const T>(shared_[known]);
    } else {
      std::uint64_t known = shared_.try_emplace(object.get(), next).first->second;
      visit(known);
      if (known == next) visit(unconst(*object));
    }
  }
  template <typename UInt, std::size_t... kRest>
  void visit(std::mersenne_twister_engine<UInt, kRest...>& random) {
    std::ostringstream written;
    if constexpr (!kReads) written << random;
    std::string text = written.str();
    visit(text);
    if constexpr (kReads) {
      if (!(std::istringstream(text) >> random)) fail();
    }
  }

  // Objects by their numbers, and the numbers of objects; 0 is that of null.
  using Numbers = std::unordered_map<const void*, std::uint64_t>;
  std::conditional_t<kReading, std::vector<void*>, Numbers> known_;
  std::conditional_t<kReading, std::vector<std::shared_ptr<const void>>, Numbers> shared_;
};

class StateWriter : public StateArchive<StateWriter, false> {
 public:
  using Sink = std::function<void(std::string_view)>;

  // Keeps everything: bytes().
  StateWriter() = default;
  // Hands what was written to `sink` block by block, so that it is never in memory as a whole; the end of it
  // with flush().
  explicit StateWriter(Sink sink) : sink_(std::move(sink)) {}

  // REQUIRES: there is no sink.
  const std::string& bytes() const { return bytes_; }
  std::string take() && { return std::move(bytes_); }
  void flush() {
    sink_(bytes_);
    bytes_.clear();
  }

 private:
  friend StateArchive;
  static constexpr std::size_t kBlock = std::size_t{1} << 16;

  void bytes(const void* data, std::size_t size) {
    const std::string_view more(static_cast<const char*>(data), size);
    if (sink_ && bytes_.size() + size > kBlock) flush();
    if (sink_ && size > kBlock) {
      sink_(more);
    } else {
      bytes_.append(more);
    }
  }

  Sink sink_;          // empty: everything is kept
  std::string bytes_;  // that the sink has not got
};

class StateReader : public StateArchive<StateReader, true> {
 public:
  // `bytes` must outlive it.
  explicit StateReader(std::string_view bytes) : bytes_(bytes) {}

  // What was not read yet.
  std::string_view rest() const { return bytes_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  friend StateArchive;

  std::size_t left() const { return bytes_.size(); }
  void bytes(void* data, std::size_t size) {
    if (size > bytes_.size()) fail();
    if (size > 0) std::memcpy(data, bytes_.data(), size);
    bytes_.remove_prefix(size);
  }

  std::string_view bytes_;
};

}  // namespace tpsim
