-- KEYS: no other. Equal counts are in the order of bytes.
local leases = 3
local function choose()
  if not out then return call('ZRANGE', KEYS[2], '0', '0')[1] end
  for _, m in ipairs(call('ZRANGE', KEYS[2], '0', excluded)) do
    if not out[m] then return m end
  end
  return nil, -2
end
local keep
