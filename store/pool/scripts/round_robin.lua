-- KEYS: 3 ring. The next is who has the next position, not the next index: members come and go.
local leases = 4
local function next_in(from)
  local z = call('ZRANGEBYSCORE', KEYS[3], from, '+inf', 'WITHSCORES', 'LIMIT', '0', excluded + 1)
  for i = 1, #z, 2 do
    if not out or not out[z[i]] then
      cursor = z[i + 1]
      return z[i]
    end
  end
end
local function choose()
  return next_in('(' .. cursor) or next_in('-inf'), -2
end
local function keep() call('SETRANGE', KEYS[1], '8', pack('<d', cursor)) end
