// The test server, written with the official Go SDK, with all features.
//
// server ERA stdio, or server ERA http PORT, where ERA is legacy or modern.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	notes = "interop://notes"
	trace = "interop/trace"
)

type nothing struct{}

type greeting struct {
	Name string `json:"name"`
}

type trip struct {
	City string `json:"city"`
	Days int    `json:"days,omitempty"`
}

type forecast struct {
	City    string `json:"city"`
	Celsius []int  `json:"celsius"`
}

type refusal struct {
	Reason string `json:"reason"`
}

type words struct {
	Text string `json:"text"`
}

type room struct {
	Room string `json:"room"`
}

type tour struct {
	Steps  int    `json:"steps"`
	Folder string `json:"folder"`
}

type echoParams struct {
	mcp.ParamsBase
	Text string `json:"text"`
}

type echoResult struct {
	mcp.ResultBase
	Echo string `json:"echo"`
}

// page is the text of the notes, which a tool rewrites.
var page = struct {
	sync.Mutex
	text string
}{text: "Bring a coat."}

func text(said string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}
}

func complete(_ context.Context, request *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	result := &mcp.CompleteResult{}
	for _, city := range []string{"Oslo", "Osaka", "Paris"} {
		if strings.HasPrefix(city, request.Params.Argument.Value) {
			result.Completion.Values = append(result.Completion.Values, city)
		}
	}
	return result, nil
}

func newServer(revision string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "inn", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions:              "A small inn, for trying clients.",
		PageSize:                  1,
		SupportedProtocolVersions: []string{revision},
		CompletionHandler:         complete,
		SubscribeHandler:          func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	addTools(server)
	addQuestions(server)
	addResources(server)
	addPrompts(server)
	echo := func(_ context.Context, _ *mcp.ServerSession, params *echoParams) (*echoResult, error) {
		return &echoResult{Echo: params.Text}, nil
	}
	if err := mcp.AddReceivingCustomMethod(server, "interop/echo", echo); err != nil {
		log.Fatal(err)
	}
	return server
}

func addTools(server *mcp.Server) {
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, func(_ context.Context, _ *mcp.CallToolRequest, in greeting) (*mcp.CallToolResult, any, error) {
		return text("Hello, " + in.Name + "!"), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "forecast"}, func(_ context.Context, _ *mcp.CallToolRequest, in trip) (*mcp.CallToolResult, forecast, error) {
		found := forecast{City: in.City, Celsius: []int{}}
		for day := range in.Days {
			found.Celsius = append(found.Celsius, day)
		}
		return nil, found, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "refuse"}, func(_ context.Context, _ *mcp.CallToolRequest, in refusal) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New(in.Reason)
	})
	mcp.AddTool(server, &mcp.Tool{Name: "hike"}, hike)
	mcp.AddTool(server, &mcp.Tool{Name: "announce"}, func(ctx context.Context, request *mcp.CallToolRequest, in words) (*mcp.CallToolResult, any, error) {
		return text("announced"), nil, request.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: in.Text})
	})
	mcp.AddTool(server, &mcp.Tool{Name: "rewrite"}, func(ctx context.Context, _ *mcp.CallToolRequest, in words) (*mcp.CallToolResult, any, error) {
		page.Lock()
		page.text = in.Text
		page.Unlock()
		return text("rewritten"), nil, server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: notes})
	})
	mcp.AddTool(server, &mcp.Tool{Name: "open_bar"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
		mcp.AddTool(server, &mcp.Tool{Name: "drink"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
			return text("Cheers!"), nil, nil
		})
		return text("open"), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "sign"}, func(_ context.Context, request *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{}, Meta: mcp.Meta{trace: request.Params.Meta[trace]}}, nil, nil
	})
}

// hike reports each step, and then waits for a file: the next call may go to another process of the server.
func hike(ctx context.Context, request *mcp.CallToolRequest, in tour) (*mcp.CallToolResult, any, error) {
	for step := 1; step <= in.Steps && request.Params.GetProgressToken() != nil; step++ {
		err := request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: request.Params.GetProgressToken(),
			Progress:      float64(step),
			Total:         float64(in.Steps),
			Message:       fmt.Sprintf("step %d", step),
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(in.Folder, "begun"), nil, 0o600); err != nil {
		return nil, nil, err
	}
	// Without the folder, everybody has gone.
	for exists(in.Folder) && !exists(filepath.Join(in.Folder, "home")) {
		select {
		case <-ctx.Done():
			return nil, nil, os.WriteFile(filepath.Join(in.Folder, "stopped"), nil, 0o600)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return text(fmt.Sprintf("hiked %d steps", in.Steps)), nil, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ask returns the answer to a question, or nil with the result that asks it: the SDK puts it to clients of both eras.
func ask[R mcp.InputResponse](request *mcp.CallToolRequest, question mcp.InputRequest) (*R, *mcp.CallToolResult) {
	if answer, ok := request.Params.InputResponses["answer"].(R); ok {
		return &answer, nil
	}
	return nil, &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"answer": question}}
}

func addQuestions(server *mcp.Server) {
	mcp.AddTool(server, &mcp.Tool{Name: "book"}, func(_ context.Context, request *mcp.CallToolRequest, in room) (*mcp.CallToolResult, any, error) {
		answer, asking := ask[*mcp.ElicitResult](request, &mcp.ElicitParams{
			Mode:    "form",
			Message: "How long do you stay in " + in.Room + "?",
			RequestedSchema: map[string]any{
				"type": "object",
				"properties": map[string]any{
					"nights":    map[string]any{"type": "integer"},
					"breakfast": map[string]any{"type": "boolean"},
				},
				"required": []string{"nights", "breakfast"},
			},
		})
		if asking != nil {
			return asking, nil, nil
		}
		stay := *answer
		if stay.Action != "accept" {
			return text(in.Room + ": " + stay.Action), nil, nil
		}
		return text(fmt.Sprintf("%s: %v nights, breakfast %v", in.Room, stay.Content["nights"], stay.Content["breakfast"])), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "pay"}, func(_ context.Context, request *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		answer, asking := ask[*mcp.ElicitResult](request, &mcp.ElicitParams{
			Mode: "url", Message: "Pay for the room.", URL: "https://inn.example/pay", ElicitationID: "pay-1",
		})
		if asking != nil {
			return asking, nil, nil
		}
		return text("payment: " + (*answer).Action), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "summarize"}, func(_ context.Context, request *mcp.CallToolRequest, in words) (*mcp.CallToolResult, any, error) {
		answer, asking := ask[*mcp.CreateMessageWithToolsResult](request, &mcp.CreateMessageParams{
			MaxTokens: 100,
			Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "Summarize: " + in.Text}}},
		})
		if asking != nil {
			return asking, nil, nil
		}
		said, ok := (*answer).Content[0].(*mcp.TextContent)
		if !ok {
			return nil, nil, errors.New("the model did not answer with text")
		}
		return text((*answer).Model + ": " + said.Text), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "look_around"}, func(_ context.Context, request *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		answer, asking := ask[*mcp.ListRootsResult](request, &mcp.ListRootsParams{})
		if asking != nil {
			return asking, nil, nil
		}
		var uris []string
		for _, root := range (*answer).Roots {
			uris = append(uris, root.URI)
		}
		return text(strings.Join(uris, " ")), nil, nil
	})
}

func addResources(server *mcp.Server) {
	read := func(contents func(uri string) *mcp.ResourceContents) mcp.ResourceHandler {
		return func(_ context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents(request.Params.URI)}}, nil
		}
	}
	server.AddResource(&mcp.Resource{Name: "notes", URI: notes}, read(func(uri string) *mcp.ResourceContents {
		page.Lock()
		defer page.Unlock()
		return &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: page.text}
	}))
	server.AddResource(&mcp.Resource{Name: "dot", URI: "interop://dot", MIMEType: "image/png"}, read(func(uri string) *mcp.ResourceContents {
		return &mcp.ResourceContents{URI: uri, MIMEType: "image/png", Blob: []byte("\x89PNG\r\n")}
	}))
	server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "cities", URITemplate: "interop://cities/{city}"}, read(func(uri string) *mcp.ResourceContents {
		city := strings.TrimPrefix(uri, "interop://cities/")
		return &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: city + " is a city."}
	}))
}

func addPrompts(server *mcp.Server) {
	say := func(say func(arguments map[string]string) string) mcp.PromptHandler {
		return func(_ context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			said := &mcp.TextContent{Text: say(request.Params.Arguments)}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: said}}}, nil
		}
	}
	city := []*mcp.PromptArgument{{Name: "city", Required: true}}
	server.AddPrompt(&mcp.Prompt{Name: "plan", Arguments: city}, say(func(arguments map[string]string) string {
		return "Plan a day in " + arguments["city"] + "."
	}))
	server.AddPrompt(&mcp.Prompt{Name: "pack"}, say(func(map[string]string) string { return "Pack a bag." }))
}

func main() {
	revision := map[string]string{"legacy": "2025-11-25", "modern": "2026-07-28"}[os.Args[1]]
	server := newServer(revision)
	if os.Args[2] == "stdio" {
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
		return
	}
	handler := mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server },
		// The modern revision has no sessions, and the SDK serves it only like this. Without the second option, which is
		// not the default, a call that a modern client cancels goes on.
		&mcp.StreamableHTTPOptions{Stateless: os.Args[1] == "modern", PropagateRequestCancellation: true},
	)
	http.Handle("/mcp", handler)
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
