//go:build linux

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/template"

	"github.com/slotgate/slotgate/store/localcluster"
)

// stage is everything that runs during a comparison. close takes it down in reverse order.
type stage struct {
	dir     string
	cluster *localcluster.Cluster
	redis   string // address of the standalone Redis of webdis and nginx
	single  *process
	closers []func()

	tenancies map[int]*tenancy // by the number of apps
}

func openStage() (*stage, error) {
	dir, err := os.MkdirTemp("", "slotgate-bench-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, tenancies: map[int]*tenancy{}}
	s.closers = append(s.closers, func() { os.RemoveAll(dir) })
	return s, nil
}

func (s *stage) close() {
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		s.closers[last]()
		s.closers = s.closers[:last]
	}
}

// launch starts a server, has it stopped by close, and waits until it answers.
func (s *stage) launch(ctx context.Context, addr, name string, env []string, program string, args ...string) (*process, error) {
	p, err := start(s.dir, name, env, program, args...)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, p.stop)
	return p, p.ready(ctx, addr)
}

func (s *stage) startSingle(ctx context.Context) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	s.redis = loopback(ports[0])
	s.single, err = s.launch(ctx, s.redis, "redis", nil, "redis-server",
		"--port", strconv.Itoa(ports[0]), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir)
	return err
}

// startWebdis runs webdis as Debian ships it, but for addresses and threads: as many as cores, the best of what it offers.
func (s *stage) startWebdis(ctx context.Context) (*process, string, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, "", err
	}
	config := map[string]any{
		"redis_host": "127.0.0.1", "redis_port": portOf(s.redis), "http_host": "127.0.0.1", "http_port": ports[0],
		"threads": runtime.NumCPU(), "http_max_request_size": 64 << 20, "daemonize": false, "verbosity": 1, "logfile": filepath.Join(s.dir, "webdis-own.log"),
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(s.dir, "webdis.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, "", err
	}
	p, err := s.launch(ctx, loopback(ports[0]), "webdis", nil, "webdis", path)
	return p, loopback(ports[0]), err
}

// nginxConfig answers as webdis does: GET /get/KEY, PUT /set/KEY with the value as body, GET /mget/KEY/KEY…, POST /mset with lines
// "KEY VALUE". Connections to Redis are kept; the answer has a Content-Length.
var nginxConfig = template.Must(template.New("nginx.conf").Parse(`
load_module {{.Modules}}/ndk_http_module.so;
load_module {{.Modules}}/ngx_http_lua_module.so;
{{if .Root}}user root;
{{end}}worker_processes {{.Workers}};
pid {{.Dir}}/nginx.pid;
error_log stderr error;
events { worker_connections 16384; }
http {
  access_log off;
  keepalive_timeout 600s;
  keepalive_requests 1000000000;
  client_body_buffer_size 4m;
  client_max_body_size 64m;
  client_body_temp_path {{.Dir}}/body;
  proxy_temp_path {{.Dir}}/proxy;
  fastcgi_temp_path {{.Dir}}/fastcgi;
  uwsgi_temp_path {{.Dir}}/uwsgi;
  scgi_temp_path {{.Dir}}/scgi;
  large_client_header_buffers 4 64k;
  default_type application/json;
  lua_package_path "{{.Lua}}/?.lua;;";
  init_by_lua_block {
    local redis = require "nginx.redis"
    -- No closure is made per request, which LuaJIT could not compile.
    function open()
      local red = redis:new()
      red:set_timeout(2000)
      local ok, err = red:connect("127.0.0.1", {{.Redis}})
      if not ok then ngx.status = 502 ngx.print(err) return ngx.exit(502) end
      return red
    end
    -- A fault is a 502, so that the load generator counts it.
    function close(red, text, err)
      if not text then ngx.status = 502 text = tostring(err) else red:set_keepalive(60000, 512) end
      ngx.header.content_length = #text
      ngx.print(text)
    end
    local function escape(c) return string.format("\\u%04x", string.byte(c)) end
    function json(s)
      if s == ngx.null then return "null" end
      if string.find(s, '[%c"\\]') then s = string.gsub(s, '[%c"\\]', escape) end
      return '"' .. s .. '"'
    end
  }
  server {
    listen {{.Listen}};
    location /get/ {
      content_by_lua_block {
        local red = open()
        local v, err = red:get(string.sub(ngx.var.uri, 6))
        close(red, v and '{"value":' .. json(v) .. '}', err)
      }
    }
    location /set/ {
      content_by_lua_block {
        ngx.req.read_body()
        local red = open()
        local ok, err = red:set(string.sub(ngx.var.uri, 6), ngx.req.get_body_data() or "")
        close(red, ok and '{"set":"OK"}', err)
      }
    }
    location /mget/ {
      content_by_lua_block {
        local red = open()
        local keys, n = {}, 0
        for k in string.gmatch(string.sub(ngx.var.uri, 7), "[^/]+") do n = n + 1; keys[n] = k end
        local vs, err = red:mget(unpack(keys))
        if vs then
          for i = 1, #vs do vs[i] = json(vs[i]) end
          vs = '{"values":[' .. table.concat(vs, ",") .. ']}'
        end
        close(red, vs, err)
      }
    }
    location = /mset {
      content_by_lua_block {
        ngx.req.read_body()
        local red = open()
        local args, n = {}, 0
        for k, v in string.gmatch(ngx.req.get_body_data(), "(%S+) (%S*)\n") do args[n + 1] = k; args[n + 2] = v; n = n + 2 end
        local ok, err = red:mset(unpack(args))
        close(red, ok and '{"mset":"OK"}', err)
      }
    }
  }
}
`))

func (s *stage) startNginx(ctx context.Context) (*process, string, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, "", err
	}
	addr := loopback(ports[0])
	var text strings.Builder
	err = nginxConfig.Execute(&text, map[string]any{
		"Modules": nginxModules, "Lua": luaPackages, "Root": os.Geteuid() == 0, "Workers": runtime.NumCPU(), "Dir": s.dir,
		"Redis": portOf(s.redis), "Listen": addr,
	})
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(s.dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		return nil, "", err
	}
	nginx, err := findProgram("nginx")
	if err != nil {
		return nil, "", err
	}
	p, err := s.launch(ctx, addr, "nginx", nil, nginx, "-p", s.dir, "-c", path, "-e", "stderr", "-g", "daemon off;")
	return p, addr, err
}

func (s *stage) startHello(ctx context.Context, o options) (*process, string, error) {
	return s.startSelf(ctx, "hello", func(addr string) []string {
		args := []string{"hello", addr}
		for _, size := range o.Values {
			args = append(args, strconv.Itoa(size))
		}
		return args
	})
}

// startSelf runs this program in another of its parts.
func (s *stage) startSelf(ctx context.Context, name string, args func(addr string) []string) (*process, string, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	addr := loopback(ports[0])
	p, err := s.launch(ctx, addr, name, nil, self, args(addr)...)
	return p, addr, err
}

func portOf(addr string) int {
	port, _ := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
	return port
}
