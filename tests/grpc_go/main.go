// SPDX-License-Identifier: Apache-2.0

// A kubelet's gRPC server as the kubelet has it: on grpc-go, behind a unix socket. It knows no messages: the answer of
// /package.Service/Method is the content of FOLDER/package.Service.Method, read anew at each call; a file of that name
// and ".error" holds a status instead ("14 not ready yet"); a method with neither is unimplemented.
//
//	grpc_go_kubelet SOCKET FOLDER
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// Messages are bytes. It takes the place of the protobuf codec, whose name requests without a content subtype mean.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v interface{}) ([]byte, error) { return *v.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, v interface{}) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func answer(folder, method string) ([]byte, error) {
	path := filepath.Join(folder, strings.Replace(strings.TrimPrefix(method, "/"), "/", ".", -1))
	if told, err := os.ReadFile(path + ".error"); err == nil {
		words := strings.SplitN(strings.TrimSpace(string(told)), " ", 2)
		code, err := strconv.Atoi(words[0])
		if err != nil || len(words) != 2 {
			return nil, status.Error(codes.Internal, "the test's error file is bad")
		}
		return nil, status.Error(codes.Code(code), words[1])
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	return data, nil
}

func serve(folder string) grpc.StreamHandler {
	return func(_ interface{}, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		data, err := answer(folder, method)
		fmt.Printf("%s %d %v\n", method, len(data), status.Code(err))
		if err != nil {
			return err
		}
		return stream.SendMsg(&data)
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: grpc_go_kubelet SOCKET FOLDER")
	}
	encoding.RegisterCodec(rawCodec{})
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("grpc-go %s\n", grpc.Version)
	log.Fatal(grpc.NewServer(grpc.UnknownServiceHandler(serve(os.Args[2]))).Serve(listener))
}
