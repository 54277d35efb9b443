// The client of the official Go SDK, and what it is told to do: a line of words, answered with a line of seconds, as in
// orders.py.

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var revisions = map[string]string{"legacy": "2025-11-25", "modern": "2026-07-28", "auto": ""}

func client(era string, command []string) error {
	started := time.Now()
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1.0.0"},
		&mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	launched := exec.Command(command[0], command[1:]...)
	launched.Stderr = os.Stderr
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: launched},
		&mcp.ClientSessionOptions{ProtocolVersion: revisions[era]})
	if err != nil {
		return err
	}
	defer session.Close()

	echo := func(said string) (float64, error) {
		began := time.Now()
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": said}})
		took := time.Since(began).Seconds()
		if err != nil {
			return 0, err
		}
		if len(result.Content) == 1 {
			if block, ok := result.Content[0].(*mcp.TextContent); ok && block.Text == said {
				return took, nil
			}
		}
		return 0, fmt.Errorf("it should have been %.100q", said)
	}

	if _, err := echo("hello from call 0"); err != nil {
		return err
	}
	tell([]float64{time.Since(started).Seconds()})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		what, numbers, err := order(lines.Text())
		if err != nil {
			return err
		}
		var times []float64
		switch what {
		case "alone":
			times, err = alone(echo, numbers[0])
		case "in_flight":
			times, err = inFlight(echo, numbers[0], numbers[1])
		case "large":
			var took float64
			took, err = echo(strings.Repeat("x", numbers[0]))
			times = []float64{took}
		default:
			err = fmt.Errorf("there is no order %q", what)
		}
		if err != nil {
			return err
		}
		tell(times)
	}
	return nil
}

func alone(echo func(string) (float64, error), count int) ([]float64, error) {
	times := make([]float64, count)
	for number := range count {
		took, err := echo(fmt.Sprintf("hello from call %d", number))
		if err != nil {
			return nil, err
		}
		times[number] = took
	}
	return times, nil
}

// As many callers as the window is wide, each of which calls again as soon as it has its result.
func inFlight(echo func(string) (float64, error), count, window int) ([]float64, error) {
	var next atomic.Int64
	var callers sync.WaitGroup
	failures := make(chan error, window)
	began := time.Now()
	for range window {
		callers.Go(func() {
			for number := next.Add(1) - 1; number < int64(count); number = next.Add(1) - 1 {
				if _, err := echo(fmt.Sprintf("hello from call %d", number)); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	callers.Wait()
	took := time.Since(began).Seconds()
	select {
	case err := <-failures:
		return nil, err
	default:
		return []float64{took}, nil
	}
}

func order(line string) (string, []int, error) {
	words := strings.Fields(line)
	numbers := make([]int, 0, len(words)-1)
	for _, word := range words[1:] {
		number, err := strconv.Atoi(word)
		if err != nil {
			return "", nil, err
		}
		numbers = append(numbers, number)
	}
	return words[0], numbers, nil
}

func tell(times []float64) {
	words := make([]string, len(times))
	for number, seconds := range times {
		words[number] = strconv.FormatFloat(seconds, 'g', -1, 64)
	}
	fmt.Println(strings.Join(words, " "))
}
