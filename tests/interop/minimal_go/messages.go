package main

import "github.com/golang/protobuf/proto"

// The messages of v1beta1 that a minimal plugin needs, as protoc-gen-go declares them.

type empty struct{}

type registerRequest struct {
	Version      string `protobuf:"bytes,1,opt,name=version,proto3"`
	Endpoint     string `protobuf:"bytes,2,opt,name=endpoint,proto3"`
	ResourceName string `protobuf:"bytes,3,opt,name=resource_name,proto3"`
}

type device struct {
	ID     string `protobuf:"bytes,1,opt,name=ID,proto3"`
	Health string `protobuf:"bytes,2,opt,name=health,proto3"`
}

type listAndWatchResponse struct {
	Devices []*device `protobuf:"bytes,1,rep,name=devices,proto3"`
}

type containerAllocateRequest struct {
	DevicesIDs []string `protobuf:"bytes,1,rep,name=devices_ids,proto3"`
}

type allocateRequest struct {
	ContainerRequests []*containerAllocateRequest `protobuf:"bytes,1,rep,name=container_requests,proto3"`
}

type deviceSpec struct {
	ContainerPath string `protobuf:"bytes,1,opt,name=container_path,proto3"`
	HostPath      string `protobuf:"bytes,2,opt,name=host_path,proto3"`
	Permissions   string `protobuf:"bytes,3,opt,name=permissions,proto3"`
}

type containerAllocateResponse struct {
	Devices []*deviceSpec `protobuf:"bytes,3,rep,name=devices,proto3"`
}

type allocateResponse struct {
	ContainerResponses []*containerAllocateResponse `protobuf:"bytes,1,rep,name=container_responses,proto3"`
}

func (m *empty) Reset()                     { *m = empty{} }
func (m *registerRequest) Reset()           { *m = registerRequest{} }
func (m *device) Reset()                    { *m = device{} }
func (m *listAndWatchResponse) Reset()      { *m = listAndWatchResponse{} }
func (m *containerAllocateRequest) Reset()  { *m = containerAllocateRequest{} }
func (m *allocateRequest) Reset()           { *m = allocateRequest{} }
func (m *deviceSpec) Reset()                { *m = deviceSpec{} }
func (m *containerAllocateResponse) Reset() { *m = containerAllocateResponse{} }
func (m *allocateResponse) Reset()          { *m = allocateResponse{} }

func (m *empty) String() string                     { return proto.CompactTextString(m) }
func (m *registerRequest) String() string           { return proto.CompactTextString(m) }
func (m *device) String() string                    { return proto.CompactTextString(m) }
func (m *listAndWatchResponse) String() string      { return proto.CompactTextString(m) }
func (m *containerAllocateRequest) String() string  { return proto.CompactTextString(m) }
func (m *allocateRequest) String() string           { return proto.CompactTextString(m) }
func (m *deviceSpec) String() string                { return proto.CompactTextString(m) }
func (m *containerAllocateResponse) String() string { return proto.CompactTextString(m) }
func (m *allocateResponse) String() string          { return proto.CompactTextString(m) }

func (*empty) ProtoMessage()                     {}
func (*registerRequest) ProtoMessage()           {}
func (*device) ProtoMessage()                    {}
func (*listAndWatchResponse) ProtoMessage()      {}
func (*containerAllocateRequest) ProtoMessage()  {}
func (*allocateRequest) ProtoMessage()           {}
func (*deviceSpec) ProtoMessage()                {}
func (*containerAllocateResponse) ProtoMessage() {}
func (*allocateResponse) ProtoMessage()          {}
