// What is measured of the official Go SDK: `server`, `http PORT`, or `client ERA COMMAND...`.

package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch arguments := os.Args[1:]; {
	case len(arguments) == 1 && arguments[0] == "server":
		err = serveStdio()
	case len(arguments) == 2 && arguments[0] == "http":
		err = serveHTTP(arguments[1])
	case len(arguments) > 2 && arguments[0] == "client":
		err = client(arguments[1], arguments[2:])
	default:
		err = fmt.Errorf("usage: server | http PORT | client ERA COMMAND...")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
