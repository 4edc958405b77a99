// Prints one line. Static, so that it runs in an image that holds nothing else.

#include <unistd.h>

int main() {
  constexpr char kText[] = "ready\n";
  return ::write(STDOUT_FILENO, kText, sizeof kText - 1) == sizeof kText - 1 ? 0 : 1;
}
