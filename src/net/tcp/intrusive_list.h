#pragma once
// A doubly linked list through a member of its elements: no allocation, removal from the middle, an
// element knows whether it is in. Elements must be removed before they die.

#include <cstddef>

namespace sandbox::tcp {

template <class T>
struct Link {
  T* before = nullptr;
  T* after = nullptr;
  bool linked = false;
};

template <class T, Link<T> T::*link>
class IntrusiveList {
 public:
  [[nodiscard]] bool empty() const { return first_ == nullptr; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] T* front() const { return first_; }
  [[nodiscard]] T* back() const { return last_; }
  static T* next(const T& item) { return (item.*link).after; }
  static bool contains(const T& item) { return (item.*link).linked; }

  // Nothing happens when it is in already.
  void push_back(T& item) {
    Link<T>& own = item.*link;
    if (own.linked) return;
    own = {last_, nullptr, true};
    (last_ != nullptr ? (last_->*link).after : first_) = &item;
    last_ = &item;
    ++size_;
  }

  void remove(T& item) {
    Link<T>& own = item.*link;
    if (!own.linked) return;
    (own.before != nullptr ? (own.before->*link).after : first_) = own.after;
    (own.after != nullptr ? (own.after->*link).before : last_) = own.before;
    own = {};
    --size_;
  }

  T* pop_front() {
    T* item = first_;
    if (item != nullptr) remove(*item);
    return item;
  }

  void move_to_back(T& item) {
    if (&item == last_) return;
    remove(item);
    push_back(item);
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sandbox::tcp
