local about = ttl > 0 and leases + 4 or leases
local reply, why = '', 0
local same = bound and call('GET', bound)
if same and (out and out[same] or not call('ZSCORE', KEYS[2], same)) then same = nil end
for n = 1, count do
  local m
  if same and fits and not fits(same) then same = nil end -- each time: it may have got a lease
  if same then m, why = same, 0 else m, why = choose(n) end
  if not m then break end
  if bound then
    call('SET', bound, m, 'PX', sticky)
    same = m
  end
  local total, part = call('ZINCRBY', KEYS[2], '1', m), nil
  local length, meta = #m, nil
  if described == 1 then
    meta = sub(call('HGET', KEYS[about], m), 25)
    length = length + 512 * #meta
  end
  if ttl > 0 then
    local id, ends = sub(ARGV[1], at, at + 21), now + ttl
    at = at + 22
    fence = fence + 1
    if fence < now then fence = now end -- it grows also if a failover has lost the last ones
    call('ZINCRBY', KEYS[leases], '1', m)
    call('ZADD', KEYS[leases + 1], ends, id)
    call('HSET', KEYS[leases + 2], id, pack('<ddc0', fence, now, m))
    if due == 0 or ends < due then due = ends end
    part = pack('<dddc0dc0', total, fence, ends, id, length, m)
  else
    part = pack('<ddc0', total, length, m)
  end
  if meta then part = part .. meta end
  if moded then part = part .. pack('<d', why) end
  if reply == '' then reply = part else reply = reply .. part end
end

if ttl > 0 and reply ~= '' then call('SETRANGE', KEYS[1], '32', pack('<dd', fence, due)) end
if reply == '' then
  local wait = 0
  if call('ZCARD', KEYS[2]) == 0 then
    why = -1
    if wake > 0 then why, wait = -4, wake - now end
  elseif why == -5 then
    wait = (tonumber(call('ZRANGE', KEYS[leases + 1], '0', '0', 'WITHSCORES')[2]) or now) - now
  end
  if wait <= 0 then return {why, 0} end
  wait = wait / 1000
  return {why, wait + -wait % 1}
end
if keep then keep() end
if head then call('SET', KEYS[#KEYS], head .. ARGV[4] .. reply, 'PX', ARGV[3]) end
return reply
