"""The baseline: a minimal device plugin on grpcio, without a framework.

The plugin offers `count` devices, registers, checks every 50 ms whether `kubelet.sock` is a new
file, and changes the health of one device for every line on standard input. The plugin imports the
modules that grpcio-tools generates from our .proto files; `plugin_process.generate_modules`
generates them.
"""

import os
import sys
import threading
import time
from concurrent import futures

import deviceplugin_v1beta1_pb2 as pb
import grpc

RESOURCE = "bench.example.com/widget"


class Plugin:
    """The service. All devices are in one list; a condition wakes the streams when it changes."""

    def __init__(self, count):
        self.devices = [pb.Device(ID=f"widget-{n}", health="Healthy") for n in range(count)]
        self.version = 0
        self.changed = threading.Condition()

    def flip(self):
        with self.changed:
            device = self.devices[0]
            device.health = "Unhealthy" if device.health == "Healthy" else "Healthy"
            self.version += 1
            self.changed.notify_all()

    def get_device_plugin_options(self, request, context):
        return pb.DevicePluginOptions()

    def list_and_watch(self, request, context):
        sent = -1
        while context.is_active():
            with self.changed:
                if sent == self.version:
                    self.changed.wait(1)
                    continue
                sent = self.version
                message = pb.ListAndWatchResponse(devices=self.devices)
            yield message

    def allocate(self, request, context):
        answer = pb.AllocateResponse()
        for container in request.container_requests:
            response = answer.container_responses.add()
            for device_id in container.devices_ids:
                path = f"/dev/{device_id}"
                response.devices.add(host_path=path, container_path=path, permissions="rw")
        return answer


def serve(plugin, path):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    handlers = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
            plugin.get_device_plugin_options,
            pb.Empty.FromString,
            pb.DevicePluginOptions.SerializeToString,
        ),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(
            plugin.list_and_watch, pb.Empty.FromString, pb.ListAndWatchResponse.SerializeToString
        ),
        "Allocate": grpc.unary_unary_rpc_method_handler(
            plugin.allocate, pb.AllocateRequest.FromString, pb.AllocateResponse.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),)
    )
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server


def register(directory):
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"unix:{directory}/kubelet.sock", options) as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            pb.RegisterRequest.SerializeToString,
            pb.Empty.FromString,
        )
        request = pb.RegisterRequest(
            version="v1beta1", endpoint="widget.sock", resource_name=RESOURCE
        )
        call(request, timeout=30)


def identity(path):
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def main():
    directory, count = sys.argv[1], int(sys.argv[2])
    plugin = Plugin(count)

    def read_commands():
        for _ in sys.stdin:
            plugin.flip()
        os._exit(0)

    threading.Thread(target=read_commands, daemon=True).start()
    kubelet, own = f"{directory}/kubelet.sock", f"{directory}/widget.sock"
    server, registered_with = serve(plugin, own), None
    while True:
        found = identity(kubelet)
        if found and found != registered_with:
            if identity(own) is None:
                server.stop(0)
                server = serve(plugin, own)
            try:
                register(directory)
                registered_with = found
            except grpc.RpcError:
                pass
        time.sleep(0.05)


if __name__ == "__main__":
    main()
