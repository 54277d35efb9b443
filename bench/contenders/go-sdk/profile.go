//go:build profile

// In a build with the tag profile, SIGUSR1 ends the program, which first writes what its time went to into the file that
// CPU_PROFILE names. Nothing of this is in the program that is measured.

package main

import (
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
)

func init() {
	file, err := os.Create(os.Getenv("CPU_PROFILE"))
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		panic(err)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		<-asked
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			panic(err)
		}
		os.Exit(0)
	}()
}
