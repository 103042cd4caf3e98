import com.fasterxml.jackson.core.JsonProcessingException;
import java.math.BigDecimal;
import java.io.File;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeSet;
import java.util.UUID;
import slotgate.ApiClient;
import slotgate.ApiException;
import slotgate.api.*;
import slotgate.model.*;

/**
 * The README's tour, and a worker of a pool, with a Java client that openapi-generator has made from openapi/openapi.yaml, on java.net.http. deploy/clients/run
 * generates the client and compiles both.
 */
public final class Tour {
  /** A key that needs escaping: a slash, characters outside ASCII, a percent sign, a plus, a space. */
  private static final String AWKWARD = "tour-java/grüße/100% + ☃";

  private final String key;
  private final StringsApi strings;
  private final CountersApi counters;
  private final BytesApi bytes;
  private final KeysApi keys;
  private final BatchesApi batches;
  private final PoolsApi pools;

  private Tour(String key) {
    this.key = key;
    ApiClient client = connect(key);
    strings = new StringsApi(client);
    counters = new CountersApi(client);
    bytes = new BytesApi(client);
    keys = new KeysApi(client);
    batches = new BatchesApi(client);
    pools = new PoolsApi(client);
  }

  private interface Step {
    void run() throws Exception;
  }

  public static void main(String[] args) {
    Tour tour = new Tour(System.getenv("KEY"));
    Map<String, Step> steps = new LinkedHashMap<>();
    steps.put("whoami", tour::whoami);
    steps.put("strings", tour::strings);
    steps.put("conditions", tour::conditions);
    steps.put("counters", tour::counters);
    steps.put("bytes", tour::bytes);
    steps.put("batches", tour::batches);
    steps.put("keys", tour::keys);
    steps.put("listing", tour::listing);
    steps.put("deleting", tour::deleting);
    steps.put("pools", tour::pools);
    steps.put("refusal", tour::refusal);
    for (Map.Entry<String, Step> step : steps.entrySet()) {
      try {
        step.getValue().run();
      } catch (Exception e) {
        System.err.println("Java client: " + step.getKey() + ": " + e);
        System.exit(1);
      }
    }
    System.out.println("Java client: " + steps.size() + " steps passed");
  }

  private static ApiClient connect(String key) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(System.getenv("GW"));
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + key));
    return client;
  }

  private static void same(String what, Object got, Object want) {
    if (!Objects.equals(got, want)) {
      throw new IllegalStateException(what + " is " + got + ", want " + want);
    }
  }

  /** Runs a step that must be refused, and tells with what code. */
  private static ErrorCode refused(int status, Step step) throws Exception {
    try {
      step.run();
    } catch (ApiException e) {
      same("the status", e.getCode(), status);
      return problem(e).getCode();
    }
    throw new IllegalStateException("not refused");
  }

  private static Problem problem(ApiException e) throws JsonProcessingException {
    return ApiClient.createDefaultObjectMapper().readValue(e.getResponseBody(), Problem.class);
  }

  private void whoami() throws ApiException {
    Whoami me = new IdentityApi(connect(key)).getWhoami(IdentityApi.APIGetWhoamiRequest.newBuilder().build());
    if (me.getApp().getNamespace().isEmpty() || me.getSizes().getValueMaxBytes() == 0 || me.getPermissions().isEmpty()) {
      throw new IllegalStateException("incomplete: " + me);
    }
  }

  private StringsApi.APIGetStringRequest.Builder get(String key) {
    return StringsApi.APIGetStringRequest.newBuilder().key(key);
  }

  private void strings() throws ApiException {
    PutStringRequest value = new PutStringRequest().value("hellö").ttlMs(600_000L);
    PutStringResult put = strings.putString(StringsApi.APIPutStringRequest.newBuilder().key(AWKWARD).putStringRequest(value).build());
    var answer = strings.getStringWithHttpInfo(get(AWKWARD).include(IncludeTtl.TTL).build());
    StringValue got = answer.getData();
    same("the value", got.getValue(), "hellö");
    same("the ETag", got.getEtag(), put.getEtag());
    same("the ETag header", answer.getHeaders().get("etag"), List.of(put.getEtag()));
    if (got.getTtlMs() == null || got.getTtlMs() < 1 || got.getTtlMs() > 600_000) {
      throw new IllegalStateException("no TTL: " + got);
    }
  }

  private void conditions() throws Exception {
    var put = StringsApi.APIPutStringRequest.newBuilder().key(AWKWARD).putStringRequest(new PutStringRequest().value("x")).ifNoneMatch("*");
    same("the code", refused(412, () -> strings.putString(put.build())), ErrorCode.PRECONDITION_FAILED);
  }

  private void counters() throws Exception {
    String visits = "tour-java/visits";
    BigDecimal beyondDouble = new BigDecimal("9007199254740993"); // 2^53 + 1
    counters.putCounter(CountersApi.APIPutCounterRequest.newBuilder().key(visits).putCounterRequest(new PutCounterRequest().value(beyondDouble)).build());
    AddCounterRequest two = new AddCounterRequest().delta(new BigDecimal(2));
    Counter added = counters.addCounter(CountersApi.APIAddCounterRequest.newBuilder().key(visits).addCounterRequest(two).build());
    same("the counter", added.getValue().getActualInstance(), beyondDouble.add(new BigDecimal(2)));
    AddCounterRequest below = new AddCounterRequest().delta(new BigDecimal(-7)).min(BigDecimal.ZERO);
    var take = CountersApi.APIAddCounterRequest.newBuilder().key("tour-java/stock").addCounterRequest(below);
    same("the code", refused(409, () -> counters.addCounter(take.build())), ErrorCode.OUT_OF_RANGE);
  }

  private void bytes() throws Exception {
    byte[] all = new byte[256];
    for (int i = 0; i < all.length; i++) {
      all[i] = (byte) i;
    }
    // The generated putBytes writes the path of its File as JSON instead of what is in it, so the octets are put in its place.
    ApiClient octets = connect(key);
    octets.setRequestInterceptor(octets.getRequestInterceptor().andThen((HttpRequest.Builder request) -> request.PUT(BodyPublishers.ofByteArray(all))));
    new BytesApi(octets).putBytes(BytesApi.APIPutBytesRequest.newBuilder().key("tour-java/bytes").body(new File("all")).build());
    var whole = BytesApi.APIGetBytesRequest.newBuilder().key("tour-java/bytes");
    same("the bytes", Arrays.equals(read(bytes.getBytes(whole.build())), all), true);
    same("the part", read(bytes.getBytes(whole.range("bytes=254-").build())).length, 2);
    var head = bytes.headBytesWithHttpInfo(BytesApi.APIHeadBytesRequest.newBuilder().key("tour-java/bytes").build());
    same("the length", head.getHeaders().get("content-length"), List.of("256"));
  }

  private static byte[] read(File file) throws Exception {
    try {
      return Files.readAllBytes(file.toPath());
    } finally {
      Files.delete(file.toPath());
    }
  }

  private void batches() throws ApiException {
    MsetRequest items = new MsetRequest();
    for (String[] item : new String[][] {{"a", "1"}, {"b", "2"}, {"ç", "3"}}) {
      items.addItemsItem(new MsetItem().key("tour-java/" + item[0]).value(item[1]));
    }
    same("written", batches.mset(BatchesApi.APIMsetRequest.newBuilder().msetRequest(items).build()).getWritten(), 3L);
    MgetRequest keys = new MgetRequest().keys(List.of("tour-java/ç", "tour-java/missing", "tour-java/a"));
    MgetResult got = batches.mget(BatchesApi.APIMgetRequest.newBuilder().mgetRequest(keys).build());
    same("errors", got.getErrors(), false);
    List<String> values = new ArrayList<>();
    got.getItems().forEach(item -> values.add(item.getFound() ? item.getValue() : null));
    same("the values", values, Arrays.asList("3", null, "1"));
    KeysRequest some = new KeysRequest().keys(List.of("tour-java/b", "tour-java/missing"));
    MexistsResult exists = batches.mexists(BatchesApi.APIMexistsRequest.newBuilder().keysRequest(some).build());
    same("exists", List.of(exists.getItems().get(0).getExists(), exists.getItems().get(1).getExists()), List.of(true, false));
  }

  private void keys() throws Exception {
    PutKeyTtlRequest minute = new PutKeyTtlRequest().ttlMs(60_000L);
    KeyTtl ttl = keys.putKeyTtl(KeysApi.APIPutKeyTtlRequest.newBuilder().key("tour-java/a").putKeyTtlRequest(minute).build());
    same("applied", ttl.getApplied(), true);
    KeyInfo info = keys.getKey(KeysApi.APIGetKeyRequest.newBuilder().key("tour-java/a").build());
    same("the key", List.of(info.getKey(), info.getType()), List.of("tour-java/a", "string"));
    Objects.requireNonNull(info.getTtlMs(), "no TTL");
    try {
      keys.headKey(KeysApi.APIHeadKeyRequest.newBuilder().key("tour-java/missing").build());
      throw new IllegalStateException("a key that is missing exists");
    } catch (ApiException e) {
      same("the status", e.getCode(), 404); // an answer to HEAD has no problem
    }
    keys.deleteKeyTtl(KeysApi.APIDeleteKeyTtlRequest.newBuilder().key("tour-java/a").build());
  }

  private void listing() throws ApiException {
    TreeSet<String> found = new TreeSet<>(); // a listing may name a key twice
    String cursor = null;
    do {
      var page = keys.listKeys(KeysApi.APIListKeysRequest.newBuilder().prefix("tour-java/").limit(2L).cursor(cursor).build());
      page.getItems().forEach(item -> found.add(item.getKey()));
      cursor = page.getNextCursor();
    } while (cursor != null);
    same("the listing", found, new TreeSet<>(List.of("tour-java/a", "tour-java/b", "tour-java/bytes", AWKWARD, "tour-java/visits", "tour-java/ç")));
  }

  private void deleting() throws Exception {
    strings.deleteString(StringsApi.APIDeleteStringRequest.newBuilder().key(AWKWARD).build());
    same("the code", refused(404, () -> strings.getString(get(AWKWARD).build())), ErrorCode.KEY_NOT_FOUND);
    KeysRequest rest = new KeysRequest();
    for (String name : List.of("a", "b", "ç", "bytes", "visits")) {
      rest.addKeysItem("tour-java/" + name);
    }
    MdeleteResult gone = batches.mdelete(BatchesApi.APIMdeleteRequest.newBuilder().keysRequest(rest).build());
    same("deleted", gone.getItems().stream().allMatch(MdeleteItem::getDeleted), true);
  }

  private PoolAllocation allocate(String once) throws ApiException {
    var request = PoolsApi.APIAllocatePoolMemberRequest.newBuilder().pool("tour-java").poolAllocate(new PoolAllocate());
    return pools.allocatePoolMember(request.idempotencyKey(once).build());
  }

  private PoolCompleted complete(PoolLease lease, PoolCompletion how) throws ApiException {
    var request = PoolsApi.APICompletePoolLeaseRequest.newBuilder().pool("tour-java").lease(lease.getId());
    return pools.completePoolLease(request.poolCompletion(how.fence(lease.getFence())).build());
  }

  /** What a worker does: it leases a member once, however often it asks, renews the lease and completes it. */
  private void pools() throws Exception {
    PoolDefinition definition = new PoolDefinition().policy(PoolPolicy.LEAST_INFLIGHT).lease(new PoolLeaseSettings().maxPerMember(1L));
    pools.putPool(PoolsApi.APIPutPoolRequest.newBuilder().pool("tour-java").poolDefinition(definition).build());
    Map<String, Object> meta = Map.of("url", "http://10.0.0.1:3128");
    PoolCandidates both = new PoolCandidates().members(List.of(new PoolCandidate().member(AWKWARD).meta(meta), new PoolCandidate().member("z")));
    pools.putPoolMembers(PoolsApi.APIPutPoolMembersRequest.newBuilder().pool("tour-java").poolCandidates(both).build());

    String once = '"' + UUID.randomUUID().toString() + '"';
    PoolAllocation first = allocate(once);
    same("the member", first.getMember(), AWKWARD);
    same("its meta", first.getMeta(), meta);
    same("the repetition", allocate(once).getLease(), first.getLease());
    same("the other", allocate(null).getMember(), "z");
    PoolAllocation nobody = allocate(null);
    same("a third", nobody.getMember(), null);
    same("why", nobody.getReason(), PoolReason.SATURATED);

    PoolLease lease = first.getLease();
    PoolRenewal minute = new PoolRenewal().fence(lease.getFence()).leaseMs(60_000L);
    pools.renewPoolLease(PoolsApi.APIRenewPoolLeaseRequest.newBuilder().pool("tour-java").lease(lease.getId()).poolRenewal(minute).build());
    var held = PoolsApi.APIGetPoolMemberRequest.newBuilder().pool("tour-java").member(AWKWARD).build();
    same("its leases", pools.getPoolMember(held).getInflight(), 1L);
    same("late", complete(lease, new PoolCompletion().outcome(PoolOutcome.SUCCESS).latencyMs(120.0)).getLate(), false);
    same("the code", refused(404, () -> complete(lease, new PoolCompletion())), ErrorCode.LEASE_NOT_FOUND);

    PoolChange adaptive = new PoolChange().policy(PoolPolicy.ADAPTIVE);
    pools.patchPool(PoolsApi.APIPatchPoolRequest.newBuilder().pool("tour-java").poolChange(adaptive).build());
    PoolReports failures = new PoolReports();
    for (int i = 0; i < 5; i++) {
      failures.addReportsItem(new PoolReport().member("z").outcome(PoolOutcome.FAILURE));
    }
    PoolHealths health = pools.reportPoolMembers(PoolsApi.APIReportPoolMembersRequest.newBuilder().pool("tour-java").poolReports(failures).build());
    same("the state", health.getItems().get(4).getState(), PoolHealth.StateEnum.UNHEALTHY);
    pools.deletePool(PoolsApi.APIDeletePoolRequest.newBuilder().pool("tour-java").build());
    same("the code", refused(404, () -> allocate(null)), ErrorCode.POOL_NOT_FOUND);
  }

  private void refusal() throws Exception {
    IdentityApi stranger = new IdentityApi(connect("sg_nobody"));
    same("the code", refused(401, () -> stranger.getWhoami(IdentityApi.APIGetWhoamiRequest.newBuilder().build())), ErrorCode.UNAUTHENTICATED);
  }
}
