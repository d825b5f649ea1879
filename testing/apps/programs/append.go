// Appends numbered lines to a file, with fsync(2) after each, and says which are durable; or checks
// that the lines up to a number are there. Go makes its system calls itself, without a C library.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func line(n int) string {
	return fmt.Sprintf("%012d %s\n", n, strings.Repeat("x", n*7%300))
}

// Returns the number of whole lines and the bytes that they have.
func whole(path string) (int, int64) {
	file, err := os.Open(path)
	fail(err)
	defer file.Close()
	reader := bufio.NewReader(file)
	n, bytes := 0, int64(0)
	for {
		found, err := reader.ReadString('\n')
		if err != nil {
			return n, bytes
		}
		if found != line(n+1) {
			fail(fmt.Errorf("line %d is %q", n+1, found))
		}
		n, bytes = n+1, bytes+int64(len(found))
	}
}

func main() {
	path := os.Args[2]
	acknowledged, err := strconv.Atoi(os.Args[3])
	fail(err)
	n, bytes := whole(path)
	if n < acknowledged {
		fail(fmt.Errorf("%d lines were acknowledged, %d are there", acknowledged, n))
	}
	if os.Args[1] == "check" {
		return
	}
	// What was not acknowledged may end in the middle of a line.
	fail(os.Truncate(path, bytes))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	fail(err)
	for {
		n++
		_, err = file.WriteString(line(n))
		fail(err)
		fail(file.Sync())
		fmt.Println(n)
	}
}
