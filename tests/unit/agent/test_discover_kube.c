// SPDX-License-Identifier: Apache-2.0
// Labels are those of Prometheus 3.0.1's discovery/kubernetes.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "agent/discover_kube_store.h"
#include "base/limits.h"

static void put(struct kube_store *s, enum kube_kind kind, const char *key, const char *json)
{
    struct json_document *d;
    struct error err = ERROR_INIT;
    if (json_parse(sv_from(json), "t", &d, &err) < 0)
        fail_msg("%s: %s", key, err.text);
    assert_int_equal(kube_store_put(s, kind, sv_from(key), json_root(d)), 0);
    json_document_free(d);
}

// What there is to tell: a line "source", or "source gone", and a line for each target, its labels
// without their common prefix.
static char *tell(struct kube_store *s)
{
    static const struct sv prefix = {"__meta_kubernetes_", 18};
    struct buf out = BUF_INIT(1u << 20);
    const char *source;
    struct target_group *g;
    int r;
    while ((r = kube_store_next(s, &source, &g)) == 1 || r == -E2BIG) {
        buf_add_fmt(&out, "%s%s\n", source, r == -E2BIG ? " too big" : g ? "" : " gone");
        for (size_t i = 0; g && i < g->count; i++) {
            for (size_t k = 0; k < g->targets[i].count; k++) {
                struct label l = g->targets[i].items[k];
                if (sv_starts_with(l.name, prefix))
                    l.name = sv_sub(l.name, prefix.len, l.name.len);
                buf_add_fmt(&out, "%s%.*s=%.*s", k ? " " : "", SV_FMT(l.name), SV_FMT(l.value));
            }
            buf_add_char(&out, '\n');
        }
        target_group_unref(g);
    }
    assert_int_equal(r, 0);
    (void)buf_cstr(&out);
    return buf_take(&out, NULL) ?: strdup("");
}

static void expect(struct kube_store *s, const char *text)
{
    char *told = tell(s);
    assert_string_equal(told, text);
    free(told);
}

static const char web_pod[] =
    "{'metadata':{'uid':'u1','labels':{'app.kubernetes.io/"
    "name':'web','app-x':'1','app.x':'2','none':''},"
    "'annotations':{'a/b':'c'},'ownerReferences':[{'kind':'No','name':'no'},"
    "{'kind':'ReplicaSet','name':'web-1','controller':true}]},"
    "'spec':{'nodeName':'n1','initContainers':[{'name':'init','image':'i:0','ports':[{'"
    "containerPort':7}]}],"
    "'containers':[{'name':'web','image':'i:1','ports':[{'name':'http','containerPort':80,'"
    "protocol':'TCP'},"
    "{'containerPort':53,'protocol':'UDP'}]},{'name':'side','image':'i:2'}]},"
    "'status':{'phase':'Running','podIP':'10.0.0.5','hostIP':'10.9.9.9','conditions':"
    "[{'type':'Initialized','status':'False'},{'type':'Ready','status':'True'}],"
    "'containerStatuses':[{'name':'side','containerID':'c://2'},{'name':'web','containerID':'c://"
    "1'}],"
    "'initContainerStatuses':[{'name':'init','containerID':'c://0'}]}}";

// JSON with ' for ".
static const char *json(const char *text)
{
    static char room[4][8192];
    static unsigned turn;
    char *out = room[turn++ % 4];
    size_t i = 0;
    for (; text[i]; i++)
        out[i] = text[i] == '\'' ? '"' : text[i];
    out[i] = '\0';
    return out;
}

#define POD_META "pod_annotation_a_b=c pod_annotationpresent_a_b=true "
#define POD_OWNER                                                                                  \
    "pod_controller_kind=ReplicaSet pod_controller_name=web-1 pod_host_ip=10.9.9.9 "               \
    "pod_ip=10.0.0.5 "
#define POD_LABELS                                                                                 \
    "pod_label_app_kubernetes_io_name=web pod_label_app_x=1 "                                      \
    "pod_labelpresent_app_kubernetes_io_name=true pod_labelpresent_app_x=true "                    \
    "pod_labelpresent_none=true pod_name=p pod_node_name=n1 pod_phase=Running pod_ready=true "     \
    "pod_uid=u1"

static void a_pod_is_a_target_for_each_port(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_POD, false, NULL);
    put(&s, KUBE_KIND_POD, "ns/p", json(web_pod));
    expect(&s, "pod/ns/p\n"
               "__address__=10.0.0.5:80 namespace=ns " POD_META
               "pod_container_id=c://1 pod_container_image=i:1 pod_container_init=false "
               "pod_container_name=web pod_container_port_name=http pod_container_port_number=80 "
               "pod_container_port_protocol=TCP " POD_OWNER POD_LABELS "\n"
               "__address__=10.0.0.5:53 namespace=ns " POD_META
               "pod_container_id=c://1 pod_container_image=i:1 pod_container_init=false "
               "pod_container_name=web pod_container_port_number=53 "
               "pod_container_port_protocol=UDP " POD_OWNER POD_LABELS "\n"
               "__address__=10.0.0.5 namespace=ns " POD_META
               "pod_container_id=c://2 pod_container_image=i:2 pod_container_init=false "
               "pod_container_name=side " POD_OWNER POD_LABELS "\n"
               "__address__=10.0.0.5:7 namespace=ns " POD_META
               "pod_container_id=c://0 pod_container_image=i:0 pod_container_init=true "
               "pod_container_name=init pod_container_port_number=7 " POD_OWNER POD_LABELS "\n");
    assert_int_equal(s.record_bytes, 0); // nothing is joined, nothing is kept
    kube_store_deinit(&s);
}

static void a_pod_without_an_address_is_no_target(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_POD, false, NULL);
    const char *pending = "{'spec':{'containers':[{'name':'c'}]},'status':{'phase':'Pending'}}";
    put(&s, KUBE_KIND_POD, "ns/p", json(pending));
    expect(&s, "");
    put(&s, KUBE_KIND_POD, "ns/p",
        json("{'spec':{'containers':[{'name':'c'}]},'status':{'phase':'Running','podIP':'fd00::1'}"
             "}"));
    expect(&s,
           "pod/ns/p\n__address__=fd00::1 namespace=ns pod_container_init=false "
           "pod_container_name=c pod_ip=fd00::1 pod_name=p pod_phase=Running pod_ready=unknown\n");
    put(&s, KUBE_KIND_POD, "ns/p", json(pending));
    expect(&s, "pod/ns/p gone\n");
    put(&s, KUBE_KIND_POD, "ns/p",
        json("{'spec':{'containers':[{'name':'c','ports':[{'containerPort':1}]}]},"
             "'status':{'podIP':'fd00::1','conditions':[{'type':'Ready','status':'False'}]}}"));
    expect(&s, "pod/ns/p\n__address__=[fd00::1]:1 namespace=ns pod_container_init=false "
               "pod_container_name=c pod_container_port_number=1 pod_ip=fd00::1 pod_name=p "
               "pod_ready=false\n");
    kube_store_remove(&s, KUBE_KIND_POD, SV("ns/p"));
    expect(&s, "pod/ns/p gone\n");
    kube_store_deinit(&s);
}

static const char node_1[] = "{'metadata':{'labels':{'zone':'z'},'annotations':{'k':'v'}},'spec':{'"
                             "providerID':'aws:///i-1'},"
                             "'status':{'addresses':[{'type':'Hostname','address':'h'},{'type':'"
                             "InternalIP','address':'10.9.9.9'},"
                             "{'type':'InternalIP','address':'fd00::9'}],'daemonEndpoints':{'"
                             "kubeletEndpoint':{'Port':10250}}}}";

static void a_node_is_its_kubelet(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_NODE, false, "n1");
    put(&s, KUBE_KIND_NODE, "n1", json(node_1));
    expect(&s, "node/n1\n__address__=10.9.9.9:10250 node_address_Hostname=h "
               "node_address_InternalIP=10.9.9.9 node_annotation_k=v node_annotationpresent_k=true "
               "node_label_zone=z node_labelpresent_zone=true node_name=n1 "
               "node_provider_id=aws:///i-1 instance=n1\n");
    // Without an address what was told stays.
    put(&s, KUBE_KIND_NODE, "n1", json("{'metadata':{},'status':{'addresses':[]}}"));
    expect(&s, "");
    kube_store_deinit(&s);
}

static void the_address_of_a_node_is_the_first_of_the_type_liked_best(void **state)
{
    static const char *const types[] = {"InternalIP",  "InternalDNS",  "ExternalIP",
                                        "ExternalDNS", "LegacyHostIP", "Hostname"};
    for (size_t i = 0; i < 6; i++) {
        struct kube_store s;
        char text[1024];
        kube_store_init(&s, KUBE_KIND_NODE, false, NULL);
        snprintf(text, sizeof(text),
                 "{'status':{'addresses':[{'type':'Other','address':'o'},{'type':'%s','address':'"
                 "worse'},"
                 "{'type':'%s','address':'best'},{'type':'%s','address':'second'}]}}",
                 types[5], types[i], types[i]);
        put(&s, KUBE_KIND_NODE, "n", json(text));
        char *told = tell(&s);
        assert_non_null(strstr(told, i == 5 ? "__address__=worse:0 " : "__address__=best:0 "));
        free(told);
        kube_store_deinit(&s);
    }
}

static void attached_nodes_are_joined_whenever_they_come(void **state)
{
    struct kube_store s;
    const char *pod =
        "{'spec':{'nodeName':'n1','containers':[{'name':'c'}]},'status':{'podIP':'1.2.3.4'}}";
    kube_store_init(&s, KUBE_KIND_POD, true, NULL);
    put(&s, KUBE_KIND_POD, "ns/p", json(pod));
#define BARE                                                                                       \
    "pod_container_init=false pod_container_name=c pod_ip=1.2.3.4 pod_name=p pod_node_name=n1 "    \
    "pod_ready=unknown\n"
    expect(&s, "pod/ns/p\n__address__=1.2.3.4 namespace=ns " BARE);
    put(&s, KUBE_KIND_NODE, "n1", json(node_1));
    put(&s, KUBE_KIND_NODE, "n2", json(node_1));
    expect(&s, "pod/ns/p\n__address__=1.2.3.4 namespace=ns node_annotation_k=v "
               "node_annotationpresent_k=true node_label_zone=z node_labelpresent_zone=true "
               "node_name=n1 " BARE);
    put(&s, KUBE_KIND_NODE, "n1", json(node_1)); // the same again is no news
    expect(&s, "");
    kube_store_remove(&s, KUBE_KIND_NODE, SV("n1"));
    expect(&s, "pod/ns/p\n__address__=1.2.3.4 namespace=ns " BARE);
    kube_store_deinit(&s);
}

static void a_service_is_a_target_for_each_port(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_SERVICE, false, NULL);
    put(&s, KUBE_KIND_SERVICE, "ns/a",
        json("{'metadata':{'labels':{'l':'1'}},'spec':{'type':'LoadBalancer','clusterIP':'172.20.0."
             "1',"
             "'loadBalancerIP':'9.9.9.9','ports':[{'name':'http','port':80,'protocol':'TCP'},"
             "{'port':53,'protocol':'UDP'}]}}"));
    put(&s, KUBE_KIND_SERVICE, "ns/b",
        json("{'spec':{'type':'ExternalName','clusterIP':'x','externalName':'db.example.org',"
             "'ports':[{'port':5432,'protocol':'TCP'}]}}"));
    put(&s, KUBE_KIND_SERVICE, "ns/c", json("{'spec':{'type':'ClusterIP'}}"));
    expect(&s,
           "svc/ns/a\n"
           "__address__=a.ns.svc:80 namespace=ns service_cluster_ip=172.20.0.1 service_label_l=1 "
           "service_labelpresent_l=true service_loadbalancer_ip=9.9.9.9 service_name=a "
           "service_port_name=http service_port_number=80 service_port_protocol=TCP "
           "service_type=LoadBalancer\n"
           "__address__=a.ns.svc:53 namespace=ns service_cluster_ip=172.20.0.1 service_label_l=1 "
           "service_labelpresent_l=true service_loadbalancer_ip=9.9.9.9 service_name=a "
           "service_port_number=53 service_port_protocol=UDP service_type=LoadBalancer\n"
           "svc/ns/b\n"
           "__address__=b.ns.svc:5432 namespace=ns service_external_name=db.example.org "
           "service_name=b service_port_number=5432 service_port_protocol=TCP "
           "service_type=ExternalName\n");
    kube_store_deinit(&s);
}

static void an_ingress_is_a_target_for_each_path(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_INGRESS, false, NULL);
    put(&s, KUBE_KIND_INGRESS, "ns/i",
        json("{'spec':{'ingressClassName':'nginx','tls':[{'hosts':['*.a.org']},{'hosts':['b.org','*"
             "']}],"
             "'rules':[{'host':'x.a.org','http':{'paths':[{'path':'/p'},{}]}},{'host':'x.y.a.org'},"
             "{'host':'b.org','http':{'paths':[]}},{'host':'b.org'},{'host':'local'}]}}"));
#define ING(host, path, scheme)                                                                    \
    "__address__=" host " ingress_class_name=nginx ingress_host=" host                             \
    " ingress_name=i ingress_path=" path " ingress_scheme=" scheme " namespace=ns\n"
    expect(&s, "ingress/ns/i\n" ING("x.a.org", "/p", "https") ING("x.a.org", "/", "https") ING(
                   "x.y.a.org", "/", "http") ING("b.org", "/", "https") ING("local", "/", "https"));
    kube_store_deinit(&s);
}

static const char plain_pod[] = "{'spec':{'nodeName':'n1','containers':[{'name':'c','image':'i','"
                                "ports':[{'name':'m','containerPort':80,"
                                "'protocol':'TCP'},{'name':'o','containerPort':81,'protocol':'TCP'}"
                                "]}]},'status':{'podIP':'10.0.0.5',"
                                "'phase':'Running'}}";

#define PLAIN "pod_ip=10.0.0.5 pod_name=p pod_node_name=n1 pod_phase=Running pod_ready=unknown"
#define PLAIN_PORT(name, number, protocol)                                                         \
    "pod_container_image=i pod_container_init=false pod_container_name=c "                         \
    "pod_container_port_name=" name " pod_container_port_number=" number                           \
    " pod_container_port_protocol=" protocol " " PLAIN

static void endpoints_are_joined_with_service_and_pods(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_ENDPOINTS, false, NULL);
    put(&s, KUBE_KIND_ENDPOINTS, "ns/e",
        json("{'metadata':{'labels':{'l':'1'}},'subsets':[{'addresses':[{'ip':'10.0.0.5','nodeName'"
             ":'n1',"
             "'targetRef':{'kind':'Pod','namespace':'ns','name':'p'}}],'notReadyAddresses':"
             "[{'ip':'10.0.0.6','hostname':'six'}],'ports':[{'name':'m','port':80,'protocol':'SCTP'"
             "}]}]}"));
#define EP "endpoints_label_l=1 endpoints_labelpresent_l=true endpoints_name=e namespace=ns"
#define FIRST                                                                                      \
    "__address__=10.0.0.5:80 endpoint_address_target_kind=Pod endpoint_address_target_name=p "     \
    "endpoint_node_name=n1 endpoint_port_name=m endpoint_port_protocol=SCTP "                      \
    "endpoint_ready=true " EP
#define SECOND                                                                                     \
    "__address__=10.0.0.6:80 endpoint_hostname=six endpoint_port_name=m "                          \
    "endpoint_port_protocol=SCTP endpoint_ready=false " EP
    expect(&s, "endpoints/ns/e\n" FIRST "\n" SECOND "\n");
    put(&s, KUBE_KIND_POD, "ns/p", json(plain_pod));
    put(&s, KUBE_KIND_POD, "ns/other", json(plain_pod));
    expect(&s, "endpoints/ns/e\n" FIRST
               " " PLAIN_PORT("m", "80", "SCTP") "\n" SECOND "\n"
                                                 "__address__=10.0.0.5:81 " EP
                                                 " " PLAIN_PORT("o", "81", "TCP") "\n");
    put(&s, KUBE_KIND_SERVICE, "ns/e", json("{'metadata':{'annotations':{'x':'y'}}}"));
    kube_store_remove(&s, KUBE_KIND_POD, SV("ns/p"));
#define SVC " service_annotation_x=y service_annotationpresent_x=true service_name=e"
    expect(&s, "endpoints/ns/e\n" FIRST SVC "\n" SECOND SVC "\n");
    kube_store_remove(&s, KUBE_KIND_ENDPOINTS, SV("ns/e"));
    expect(&s, "endpoints/ns/e gone\n");
    put(&s, KUBE_KIND_SERVICE, "ns/e", json("{}"));
    expect(&s, "");
    kube_store_deinit(&s);
}

static void slices_are_joined_by_the_label_of_their_service(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_ENDPOINTSLICE, true, NULL);
    put(&s, KUBE_KIND_POD, "ns/p", json(plain_pod));
    put(&s, KUBE_KIND_SERVICE, "ns/svc", json("{}"));
    put(&s, KUBE_KIND_NODE, "n1", json("{'metadata':{'labels':{'z':'1'}}}"));
    put(&s, KUBE_KIND_ENDPOINTSLICE, "ns/s",
        json("{'metadata':{'labels':{'kubernetes.io/"
             "service-name':'svc'}},'addressType':'IPv4','ports':"
             "[{'name':'m','port':80,'protocol':'SCTP','appProtocol':'http'},{'port':null}],'"
             "endpoints':"
             "[{'addresses':['10.0.0.5','10.0.0.7'],'conditions':{'ready':true,'serving':false,"
             "'terminating':false},'hostname':'h','nodeName':'n1','zone':'z','targetRef':{'kind':'"
             "Pod',"
             "'namespace':'ns','name':'p'},'deprecatedTopology':{'a/b':'c'}}]}"));
#define SLICE(head, port, pod)                                                                     \
    "__address__=" head " endpointslice_address_target_kind=Pod "                                  \
    "endpointslice_address_target_name=p endpointslice_address_type=IPv4 "                         \
    "endpointslice_endpoint_conditions_ready=true "                                                \
    "endpointslice_endpoint_conditions_serving=false "                                             \
    "endpointslice_endpoint_conditions_terminating=false endpointslice_endpoint_hostname=h "       \
    "endpointslice_endpoint_node_name=n1 endpointslice_endpoint_topology_a_b=c "                   \
    "endpointslice_endpoint_topology_present_a_b=true endpointslice_endpoint_zone=z "              \
    "endpointslice_label_kubernetes_io_service_name=svc "                                          \
    "endpointslice_labelpresent_kubernetes_io_service_name=true endpointslice_name=s " port        \
    "namespace=ns node_label_z=1 node_labelpresent_z=true node_name=n1 " pod " service_name=svc\n"
#define PORT_80                                                                                    \
    "endpointslice_port=80 endpointslice_port_app_protocol=http endpointslice_port_name=m "        \
    "endpointslice_port_protocol=SCTP "
    expect(&s,
           "endpointslice/ns/s\n" SLICE("10.0.0.5:80", PORT_80, PLAIN_PORT("m", "80", "TCP")) SLICE(
               "10.0.0.7:80", PORT_80, PLAIN_PORT("m", "80", "TCP")) SLICE("10.0.0.5", "", PLAIN)
               SLICE("10.0.0.7", "",
                     PLAIN) "__address__=10.0.0.5:81 endpointslice_address_type=IPv4 "
                            "endpointslice_label_kubernetes_io_service_name=svc "
                            "endpointslice_labelpresent_kubernetes_io_service_name=true "
                            "endpointslice_name=s "
                            "namespace=ns " PLAIN_PORT("o", "81", "TCP") " service_name=svc\n");
    kube_store_deinit(&s);
}

static void on_a_node_only_its_addresses_are_targets(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_ENDPOINTS, false, "n1");
    put(&s, KUBE_KIND_POD, "ns/p",
        json("{'spec':{'nodeName':'n1'},'status':{'podIP':'10.0.0.5','phase':'Running'}}"));
    put(&s, KUBE_KIND_ENDPOINTS, "ns/e",
        json("{'subsets':[{'addresses':[{'ip':'1.1.1.1','nodeName':'n1'},{'ip':'2.2.2.2','nodeName'"
             ":'n2'},"
             "{'ip':'3.3.3.3'},{'ip':'10.0.0.5','targetRef':{'kind':'Pod','namespace':'ns','name':'"
             "p'}},"
             "{'ip':'4.4.4.4','targetRef':{'kind':'Pod','namespace':'ns','name':'q'}}],"
             "'ports':[{'port':1}]}]}"));
    expect(&s, "endpoints/ns/e\n"
               "__address__=1.1.1.1:1 endpoint_node_name=n1 endpoint_ready=true endpoints_name=e "
               "namespace=ns\n"
               "__address__=10.0.0.5:1 endpoint_address_target_kind=Pod "
               "endpoint_address_target_name=p endpoint_ready=true endpoints_name=e namespace=ns "
               "pod_ip=10.0.0.5 pod_name=p pod_node_name=n1 pod_phase=Running pod_ready=unknown\n");
    kube_store_deinit(&s);
}

static void many_changes_of_one_object_are_one_group(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_SERVICE, false, NULL);
    for (unsigned i = 0; i < 100; i++) {
        char text[128];
        snprintf(text, sizeof(text), "{'spec':{'type':'T','ports':[{'port':%u}]}}", i);
        put(&s, KUBE_KIND_SERVICE, "ns/a", json(text));
    }
    expect(&s, "svc/ns/a\n__address__=a.ns.svc:99 namespace=ns service_name=a "
               "service_port_number=99 service_type=T\n");
    assert_false(kube_store_has_news(&s));
    kube_store_deinit(&s);
}

static void an_object_with_too_many_labels_is_left_out(void **state)
{
    for (unsigned count = LIMIT_LABELS / 2 - 8; count <= LIMIT_LABELS / 2 + 8; count += 16) {
        struct kube_store s;
        struct buf text = BUF_INIT(1u << 20);
        kube_store_init(&s, KUBE_KIND_SERVICE, false, NULL);
        put(&s, KUBE_KIND_SERVICE, "ns/a", json("{'spec':{'ports':[{'port':1}]}}"));
        free(tell(&s));
        buf_add_str(&text, "{\"metadata\":{\"labels\":{");
        for (unsigned i = 0; i < count; i++)
            buf_add_fmt(&text, "%s\"l%u\":\"v\"", i ? "," : "", i);
        buf_add_str(&text, "}},\"spec\":{\"ports\":[{\"port\":1}]}}");
        put(&s, KUBE_KIND_SERVICE, "ns/a", buf_cstr(&text));
        char *told = tell(&s);
        assert_int_equal(strncmp(told, "svc/ns/a too big\n", 17) == 0, count > LIMIT_LABELS / 2);
        free(told);
        buf_deinit(&text);
        kube_store_deinit(&s);
    }
}

static void values_of_another_type_are_absent(void **state)
{
    struct kube_store s;
    kube_store_init(&s, KUBE_KIND_POD, false, NULL);
    put(&s, KUBE_KIND_POD, "ns/p",
        json("{'metadata':{'labels':['x'],'annotations':{'a':1},'ownerReferences':{}},'spec':{'"
             "nodeName':7,"
             "'containers':[1,{'name':{},'ports':[{'containerPort':'80'},null]}]},'status':{'podIP'"
             ":'1.1.1.1',"
             "'conditions':[{'type':'Ready'}]}}"));
    expect(&s,
           "pod/ns/p\n"
           "__address__=1.1.1.1 namespace=ns pod_container_init=false pod_ip=1.1.1.1 pod_name=p "
           "pod_ready=unknown\n"
           "__address__=1.1.1.1:0 namespace=ns pod_container_init=false "
           "pod_container_port_number=0 pod_ip=1.1.1.1 pod_name=p pod_ready=unknown\n"
           "__address__=1.1.1.1:0 namespace=ns pod_container_init=false "
           "pod_container_port_number=0 pod_ip=1.1.1.1 pod_name=p pod_ready=unknown\n");
    kube_store_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pod_is_a_target_for_each_port),
        cmocka_unit_test(a_pod_without_an_address_is_no_target),
        cmocka_unit_test(a_node_is_its_kubelet),
        cmocka_unit_test(the_address_of_a_node_is_the_first_of_the_type_liked_best),
        cmocka_unit_test(attached_nodes_are_joined_whenever_they_come),
        cmocka_unit_test(a_service_is_a_target_for_each_port),
        cmocka_unit_test(an_ingress_is_a_target_for_each_path),
        cmocka_unit_test(endpoints_are_joined_with_service_and_pods),
        cmocka_unit_test(slices_are_joined_by_the_label_of_their_service),
        cmocka_unit_test(on_a_node_only_its_addresses_are_targets),
        cmocka_unit_test(many_changes_of_one_object_are_one_group),
        cmocka_unit_test(an_object_with_too_many_labels_is_left_out),
        cmocka_unit_test(values_of_another_type_are_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
